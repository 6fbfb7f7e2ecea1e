"""Copies of everything a relay must not lose, made while it runs, and how one is put back."""
