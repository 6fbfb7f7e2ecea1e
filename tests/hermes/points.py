"""Where a turn can be held while its relay, its socket or its Hermes is taken away: in the states it is stored in.

A message that says `AT:submitting:x` waits in that state until `submitting:x` is let go. The waits of a relay that
looks for an end are shortened here too, for a test has no two minutes.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from app.hermes.dashboard import connection
from app.turns import course, ends, settle
from app.turns.course import Course
from app.turns.turn import Turn

POLL_S = (0.2, 0.5)
UNSEEN_S = 4.0
_AT = re.compile(r"\bAT:((\w+):\w+)")


class Points:
    def __init__(self, on_reached: Callable[[str], None] = lambda point: None) -> None:
        self._on_reached = on_reached
        self._reached: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._go: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def reached(self, point: str) -> None:
        await self._reached[point].wait()

    def let_go(self, point: str) -> None:
        self._go[point].set()

    async def pass_by(self, state: str, turn: Turn) -> None:
        at = _AT.search(str(turn.order.message))
        if at is None or at[2] != state:
            return
        self._reached[at[1]].set()
        self._on_reached(at[1])
        await self._go[at[1]].wait()

    def install(self, patch: Callable[[Any, str, Any], None] = setattr) -> None:
        """`patch` sets an attribute, for good or for a while."""
        submit, listen, keep_end = Course._submit, Course._listen, ends.keep_end

        async def held_submit(self_: Course) -> bool:
            await self.pass_by("accepted", self_._turn)
            return await submit(self_)

        async def held_listen(self_: Course, bond: Any) -> None:
            await self.pass_by("submitting", self_._turn)  # it is stored; no byte has left
            await listen(self_, bond)

        async def held_end(turn: Turn, rooms: Any) -> None:
            await self.pass_by("ending", turn)  # it was heard; it is not stored
            await keep_end(turn, rooms)

        patch(Course, "_submit", held_submit)
        patch(Course, "_listen", held_listen)
        patch(course, "keep_end", held_end)


def hurry(hermes: Any, patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Look for ends, and for the dashboard, more often, and give up sooner on what was perhaps never submitted."""
    patch(settle, "UNSEEN_S", UNSEEN_S)
    patch(connection, "LONGEST_PAUSE_S", POLL_S[1])
    for upstream in hermes._upstreams.values():
        upstream.poll_s = POLL_S
