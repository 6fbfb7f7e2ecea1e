"""Turns over the dashboard of Hermes: its WebSocket, how one gets in, and what its events mean."""
