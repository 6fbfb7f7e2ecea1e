"""Approvals and questions, whoever asks: shown to every device, answered at most once, and always ended."""
