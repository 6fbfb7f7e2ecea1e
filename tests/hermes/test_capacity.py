"""More turns than Hermes runs at once: a refusal that is named, or a wait that is said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.hermes.hermes_lab import MOST_RUNS, THREADS, Lab
from tests.hermes.talk import ended, events, say, send
from tests.hermes.ways import running_over

pytestmark = pytest.mark.hermes


def client(lab: Lab) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {lab.key}"}
    return httpx.AsyncClient(base_url=lab.url, headers=headers, trust_env=False, timeout=60)


@asynccontextmanager
async def all_runs_taken(lab: Lab) -> AsyncIterator[None]:
    """Somebody else's, with a model that says nothing for long."""
    async with client(lab) as hermes:
        ids = []
        for _ in range(MOST_RUNS):
            answer = await hermes.post("/v1/runs", json={"input": "STALL:30 SAY:busy"})
            assert answer.status_code == 202, answer.text
            ids.append(answer.json()["run_id"])
        yield
        for id in ids:
            await hermes.post(f"/v1/runs/{id}/stop")


@asynccontextmanager
async def all_threads_taken(lab: Lab) -> AsyncIterator[None]:
    """For some seconds. Streamed turns are not limited, so the last ones only look as if they ran."""
    async with client(lab) as hermes, AsyncExitStack() as stack:
        sessions = [(await hermes.post("/api/sessions", json={})).json()["session"]["id"] for _ in range(THREADS)]
        for id in sessions:
            body = {"message": "STALL:4 SAY:busy"}
            stream = hermes.stream("POST", f"/api/sessions/{id}/chat/stream", json=body)
            assert (await stack.enter_async_context(stream)).status_code == 200
        yield


@pytest.mark.parametrize("way", ["runs", "completions"])
async def test_more_than_hermes_takes_is_refused(lab: Lab, tmp_path: Path, way: str) -> None:
    async with running_over(way, lab, tmp_path) as relay:
        phone = await relay.connect()
        session = (await say(phone, "SAY:start"))["session_id"]
        async with all_runs_taken(lab):
            end = await say(phone, "SAY:one too many", session_id=session)
        assert end["finish"] == "failed"
        assert (end["error"]["code"], end["error"]["layer"]) == ("upstream_busy", "upstream")
        assert (end["error"]["retryable"], end["error"]["retry_after"]) == (True, 1)


@pytest.mark.parametrize("way", ["session_stream", "runs"])
async def test_a_turn_that_waits_for_others_says_so(
    lab: Lab, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.turns.course.WAITING_S", 0.7)
    async with running_over(way, lab, tmp_path) as relay:
        phone = await relay.connect()
        session = (await say(phone, "SAY:start"))["session_id"]
        async with all_threads_taken(lab):
            turn = await send(phone, "SAY:at last", session_id=session)
            notice = await phone.event("run.waiting")
            assert notice.payload["turn_id"] == turn["turn_id"]
            end = await ended(phone, turn["turn_id"])
        assert (end["finish"], end["text"]) == ("completed", "at last")
        assert len(events(phone, "run.waiting")) == 1
