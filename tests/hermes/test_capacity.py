"""More turns than Hermes runs at once: a refusal that is named, or a wait that is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.talk import ended, events, send
from tests.hermes.ways import running_over
from tests.phone import Phone

pytestmark = pytest.mark.hermes

RUNS = 10  # max_concurrent_runs of Hermes: beyond it a run is refused
THREADS = min(32, (os.cpu_count() or 1) + 4)  # of Hermes's pool: beyond them a streamed turn waits without a word


async def begin(phone: Phone, count: int, text: str) -> list[str]:
    return [(await send(phone, text))["turn_id"] for _ in range(count)]


async def test_too_many_runs(lab: Lab, tmp_path: Path) -> None:
    """Completions share the limit and its refusal."""
    async with (
        running_over("runs", lab, tmp_path / "runs") as relay,
        running_over("completions", lab, tmp_path / "completions") as other,
    ):
        phone, guest = await relay.connect(), await other.connect()
        turns = await begin(phone, RUNS, "STALL:60")
        await phone.until("stream.event", lambda f: f.payload["turn_id"] == turns[-1])
        for one in (phone, guest):
            turn = await send(one, "SAY:one too many")
            end = await ended(one, turn["turn_id"])
            assert end["finish"] == "failed"
            assert (end["error"]["code"], end["error"]["layer"]) == ("upstream_busy", "upstream")
            assert end["error"]["retryable"] is True
        for turn_id in turns:
            await phone.ask("chat", "chat.stop", {"turn_id": turn_id})
        for turn_id in turns:
            assert (await ended(phone, turn_id))["finish"] in ("stopped", "failed")


async def test_a_streamed_turn_that_waits_says_so(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.turns.course.WAITING_S", 0.7)
    async with running_over("session_stream", lab, tmp_path) as relay:
        phone = await relay.connect()
        await begin(phone, THREADS, "WORDS:60 DELAY:50")
        answering: set[str] = set()
        while len(answering) < THREADS:
            answering.add((await phone.event("assistant.delta")).payload["turn_id"])
        waiting = (await send(phone, "SAY:at last"))["turn_id"]
        notice = await phone.event("run.waiting")
        assert notice.payload["turn_id"] == waiting
        end = await ended(phone, waiting)
        assert (end["finish"], end["text"]) == ("completed", "at last")
        assert len(events(phone, "run.waiting")) == 1
