"""Time, injected. Nothing else in the project reads a clock, so tests own it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Clock:
    """Real time. `now()` is Unix time in seconds; `monotonic()` only measures durations."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock(Clock):
    """A clock that a test moves by hand."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
