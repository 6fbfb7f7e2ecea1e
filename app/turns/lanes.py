"""One turn at a time in each upstream session; the others of that session wait in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from app.tasks import Supervisor
from app.turns.turn import Turn

log = logging.getLogger("talaria.turns")

MAX_MOVED = 1000  # sessions that went on in another


class Lane:
    """Of one session, or of a new conversation that has none yet."""

    __slots__ = ("session_id", "waiting")

    def __init__(self, session_id: str | None) -> None:
        self.session_id = session_id
        self.waiting: deque[Turn] = deque()


class Lanes:
    """`run` takes a turn to its end."""

    def __init__(self, tasks: Supervisor, run: Callable[[Turn], Awaitable[None]]) -> None:
        self._tasks, self._run = tasks, run
        self._by_session: dict[str, Lane] = {}
        self._by_turn: dict[str, Lane] = {}
        self._moved: dict[str, str] = {}  # session → the one it went on in, the oldest first
        self._driving: set[asyncio.Task[None]] = set()

    def enter(self, turn: Turn) -> None:
        lane = self._by_session.get(self._now(turn.state.session_id))
        if lane is None:
            lane = Lane(turn.session_id)
            if turn.session_id is not None:
                self._by_session[turn.session_id] = lane
            task = self._tasks.start(self._drive(lane), f"lane of {turn.turn_id}")
            self._driving.add(task)
            task.add_done_callback(self._driving.discard)
        lane.waiting.append(turn)
        self._by_turn[turn.turn_id] = lane

    def adopt(self, turn: Turn, session_id: str) -> list[Turn]:
        """A running turn's session is now this one. Returns the turns that wait for it, and follow."""
        lane = self._by_turn[turn.turn_id]
        self._forget(lane)
        if lane.session_id is not None:
            self._remember(lane.session_id, session_id)
        lane.session_id = session_id
        self._by_session.setdefault(session_id, lane)
        return list(lane.waiting)

    def leave(self, turn: Turn) -> None:
        """A turn that waits will not run."""
        lane = self._by_turn.get(turn.turn_id)
        if lane is not None and turn in lane.waiting:
            lane.waiting.remove(turn)
            del self._by_turn[turn.turn_id]

    async def close(self) -> None:
        """Turns stop being followed; those that upstream has go on there."""
        for task in self._driving:
            task.cancel()
        await asyncio.gather(*self._driving, return_exceptions=True)

    async def _drive(self, lane: Lane) -> None:
        try:
            while lane.waiting:
                turn = lane.waiting.popleft()
                try:
                    await self._run(turn)
                except Exception:  # those behind it are not to blame
                    log.exception("a turn broke off in the relay", extra={"turn": turn.turn_id})
                finally:
                    self._by_turn.pop(turn.turn_id, None)
        finally:
            self._forget(lane)

    def _remember(self, old: str, new: str) -> None:
        """A device may not have heard of it yet."""
        self._moved.pop(new, None)
        if old != new:
            self._moved[old] = new
        if len(self._moved) > MAX_MOVED:
            del self._moved[next(iter(self._moved))]

    def _now(self, session_id: str) -> str:
        while (moved := self._moved.get(session_id)) is not None:
            session_id = moved
        return session_id

    def _forget(self, lane: Lane) -> None:
        if lane.session_id is not None and self._by_session.get(lane.session_id) is lane:
            del self._by_session[lane.session_id]
