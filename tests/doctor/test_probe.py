"""The stream by which the relay sees whether its answers are held back on the way."""

from __future__ import annotations

import asyncio

import pytest

from app.api.doctor import _pieces
from app.doctor import probe
from app.doctor.probe import Probe


async def test_the_second_piece_waits_for_the_first_however_slow_the_machine_is() -> None:
    asked = Probe()
    asked.begin()
    pieces = _pieces(asked)
    assert await anext(pieces) == b"data: first\n\n"
    async with asyncio.TaskGroup() as tasks:
        second: asyncio.Task[bytes] = tasks.create_task(anext(pieces))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert not second.done()
        asked.saw()
    assert second.result() == b"data: seen\n\n"


async def test_a_first_piece_that_nobody_sees_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "HELD_S", 0.01)
    asked = Probe()
    asked.saw()
    asked.begin()
    assert [piece async for piece in _pieces(asked)][-1] == b"data: held\n\n"
