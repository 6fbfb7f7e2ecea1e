"""Whether this process lives in a container, and whether the container ends with it."""

from __future__ import annotations

import os

MARKS = ("/.dockerenv", "/run/.containerenv")  # of Docker, of Podman


def is_inside() -> bool:
    return any(os.path.exists(mark) for mark in MARKS)


def ends_with_us() -> bool:
    """As its first process, or as the child of a first process that only reaps (`docker run --init`)."""
    return os.getpid() == 1 or (os.getppid() == 1 and is_inside())
