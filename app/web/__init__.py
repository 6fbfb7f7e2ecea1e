"""The phone web app: static files that a browser runs as they are, without a build step."""

from __future__ import annotations

from pathlib import Path


def static_dir() -> Path:
    """Where the files lie, in a checkout and in an installed wheel alike."""
    return Path(__file__).parent / "static"
