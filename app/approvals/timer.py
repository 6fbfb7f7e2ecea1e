"""One task that sleeps until something is due, however many asks there are."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from app.approvals.register import Register
from app.clock import Clock, Sleep
from app.tasks import Supervisor

MAX_NAP_S = 5.0  # a clock may be set, and a host that slept wakes later than it was asked to


class Timer:
    def __init__(
        self, clock: Clock, tasks: Supervisor, sleep: Sleep, register: Register, look: Callable[[], None]
    ) -> None:
        """`look` does what is due, and may arm again."""
        self._clock, self._tasks, self._sleep, self._register, self._look = clock, tasks, sleep, register, look
        self._task: asyncio.Task[None] | None = None
        self._rings_at = math.inf
        self._looking = False
        self._closed = False

    def arm(self) -> None:
        """After every change. Sleeps on where nothing is due sooner than it was."""
        if self._looking or self._closed:
            return
        moments = [moment for entry in self._register if (moment := entry.next_moment(self._clock)) is not None]
        if not moments:
            self._stop()
            return
        nap = min(max(min(moments), 0.0), MAX_NAP_S)
        rings_at = self._clock.monotonic() + nap
        if self._task is None or rings_at < self._rings_at:
            self._stop()
            self._rings_at = rings_at
            self._task = self._tasks.start(self._nap(nap), "approvals timer")

    def close(self) -> None:
        self._closed = True
        self._stop()

    async def _nap(self, seconds: float) -> None:
        await self._sleep(seconds)
        self._task = None  # from here it is not cancelled by what it finds
        self._looking = True
        try:
            self._look()
        finally:
            self._looking = False
            self.arm()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task, self._rings_at = None, math.inf
