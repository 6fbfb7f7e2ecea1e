"""More turns than Hermes runs at once: those over the limit wait without a word of it, or are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.hermes.hermes_lab import THREADS, Lab
from tests.hermes.narrow import RUNS, narrowed
from tests.hermes.talk import ended, events, say, send
from tests.hermes.ways import environ
from tests.relay import RunningRelay, running, settings_for

pytestmark = pytest.mark.hermes


def client(lab: Lab) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {lab.key}"}
    return httpx.AsyncClient(base_url=lab.url, headers=headers, trust_env=False, timeout=60)


@asynccontextmanager
async def all_threads_taken(lab: Lab, until: Path) -> AsyncIterator[None]:
    """Before that file is there. Streamed turns are not limited, so the last ones only look as if they ran."""
    async with client(lab) as hermes, AsyncExitStack() as stack:
        sessions = [(await hermes.post("/api/sessions", json={})).json()["session"]["id"] for _ in range(THREADS)]
        for id in sessions:
            body = {"message": f"HOLD:{until} SAY:busy"}
            stream = hermes.stream("POST", f"/api/sessions/{id}/chat/stream", json=body)
            assert (await stack.enter_async_context(stream)).status_code == 200
        yield


async def test_a_turn_that_waits_for_others_says_so(
    lab: Lab, relay: RunningRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = await relay.connect()
    session = (await say(phone, "SAY:start"))["session_id"]
    monkeypatch.setattr("app.turns.course.WAITING_S", 0.7)  # after the first turn: it may be slow, and would say so too
    free = tmp_path / "free"
    async with all_threads_taken(lab, free):
        turn = await send(phone, "SAY:at last", session_id=session)
        notice = await phone.event("run.waiting")
        assert notice.payload["turn_id"] == turn["turn_id"]
        free.touch()
        end = await ended(phone, turn["turn_id"])
    assert (end["finish"], end["text"]) == ("completed", "at last")
    assert len(events(phone, "run.waiting")) == 1


@pytest.mark.parametrize("way", ["runs", "completions"])
async def test_more_than_hermes_takes_is_refused(lab: Lab, tmp_path: Path, way: str) -> None:
    """As Hermes does it. With as many turns as that takes, a host with few cores answers nothing at all any more."""
    hide = RUNS if way == "completions" else ()
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(narrowed(lab.url, hide=hide, full=True))
        relay = await stack.enter_async_context(running(settings_for(tmp_path, **environ(way, lab, api=api))))
        end = await say(await relay.connect(), "SAY:one too many")
    assert end["finish"] == "failed"
    assert (end["error"]["code"], end["error"]["layer"]) == ("upstream_busy", "upstream")
    assert (end["error"]["retryable"], end["error"]["retry_after"]) == (True, 1)
