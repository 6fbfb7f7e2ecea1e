from __future__ import annotations

import asyncio

from app.clock import Clock
from app.tasks import Supervisor
from app.turns.lanes import Lanes
from app.turns.turn import Turn


async def test_a_turn_that_breaks_off_does_not_hold_up_those_behind_it() -> None:
    ran: list[str] = []
    finished = asyncio.Event()

    async def run(turn: Turn) -> None:
        ran.append(turn.turn_id)
        if turn.turn_id == "t1":
            raise RuntimeError("nobody foresaw this")
        finished.set()

    async with Supervisor() as tasks:
        lanes = Lanes(tasks, run)
        for turn_id in ("t1", "t2"):
            turn = Turn(turn_id, "phone", "s", {"message": "hi"}, created_at=0.0, clock=Clock(), moved=lambda *_: None)
            lanes.enter(turn)
        async with asyncio.timeout(10):
            await finished.wait()
    assert ran == ["t1", "t2"]
