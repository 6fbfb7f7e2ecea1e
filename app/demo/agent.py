"""The agent of the stand-in: owns the turns, and tells tests what has happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from app.clock import Clock
from app.demo.asks import Asks
from app.demo.history import History
from app.demo.refusal import draining
from app.demo.script import Script
from app.demo.surface import Surface
from app.demo.turn import Turn
from app.tasks import Supervisor


class Agent:
    """May be served, stopped and served again: sessions and counts stay, as in a Hermes that restarts.

    `gate` holds back turns marked `gated` while it is cleared. `turns_started` has one entry for each
    message, so that a test can prove that nothing was submitted twice. `delay_s` is the pause
    before each piece of an answer.
    """

    def __init__(
        self,
        *,
        delay_s: float = 0.025,
        approval_timeout_s: float = 60,
        question_timeout_s: float = 300,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.delay_s = delay_s
        self.keepalive_s = 30.0
        self.history = History(self.clock)
        self.asks = Asks(approval_timeout_s, question_timeout_s)
        self.gate = asyncio.Event()
        self.gate.set()
        self.turns_started: list[tuple[str, str]] = []  # (session_id, message)
        self.given: dict[str, list[Any]] = {}  # run → the conversation that came with it
        self.turns_ended = 0
        self.turns_refused = 0
        self.at_gate = 0
        self.open = 0  # streams being read
        self.aborted = 0  # streams whose reader left early
        self.up_since = self.clock.now()
        self._tasks: Supervisor | None = None  # None: no turn can begin
        self._change = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While it runs, turns can begin; turns still running at the end are stopped."""
        async with Supervisor() as tasks:
            self._tasks, self.up_since = tasks, self.clock.now()
            try:
                yield
            finally:
                self._tasks = None

    async def stop_turns(self) -> None:
        """Every running turn ends now, its stream with `done` and nothing else; no turn can begin."""
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            await tasks.close()

    def submitted(self, session_id: str, message: str) -> None:
        self.turns_started.append((session_id, message))
        self.changed()

    def refused(self) -> None:
        """One of those submitted does not run: it was refused, or went into another, or was given up before."""
        self.turns_refused += 1
        self.changed()

    def begin(self, session_id: str, message: str, script: Script, surface: Surface) -> Turn:
        """Raises Refusal while the agent is stopping."""
        if self._tasks is None:
            self.refused()
            raise draining()
        turn = Turn(self, session_id, message, script, surface)
        turn.task = self._tasks.start(turn.run(), f"stand-in turn {len(self.turns_started)}")
        # Here and not in the turn: a task that is cancelled before its first step runs nothing of its own.
        turn.task.add_done_callback(lambda _: self._turn_ended(surface))
        return turn

    def _turn_ended(self, surface: Surface) -> None:
        surface.ended()
        self.turns_ended += 1
        self.changed()

    async def wait_at_gate(self) -> None:
        self.at_gate += 1
        self.changed()
        try:
            await self.gate.wait()
        finally:
            self.at_gate -= 1
            self.changed()

    @property
    def is_running(self) -> bool:
        return self._tasks is not None

    @property
    def turns_running(self) -> int:
        return len(self.turns_started) - self.turns_refused - self.turns_ended

    def changed(self) -> None:
        """Wake whoever waits for a count to change."""
        self._change.set()
        self._change = asyncio.Event()

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for a condition on the counts above."""
        while not true():
            await self._change.wait()

    async def started(self, count: int = 1) -> None:
        await self.until(lambda: len(self.turns_started) >= count)

    async def ended(self, count: int = 1) -> None:
        """Turns refused with an HTTP status do not count."""
        await self.until(lambda: self.turns_ended >= count)

    async def gated(self, count: int = 1) -> None:
        """Wait until that many turns wait at the gate."""
        await self.until(lambda: self.at_gate >= count)

    async def idle(self) -> None:
        """Wait until no turn runs and no stream is open."""
        await self.until(lambda: not self.turns_running and not self.open)
