"""A real Hermes' own streamed chat, asked for through the relay by a client of that API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import orjson
import pytest

from app.wire.sse import SseSplitter
from tests.hermes.hermes_lab import Lab
from tests.phone import Phone
from tests.relay import RunningRelay

pytestmark = pytest.mark.hermes


@pytest.fixture
async def phone(relay: RunningRelay) -> Phone:
    return await relay.connect()


@pytest.fixture
async def http(relay: RunningRelay, phone: Phone) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=relay.url, headers={"Authorization": f"Bearer {phone.token}"}) as http:
        yield http


async def session(http: httpx.AsyncClient) -> str:
    return str((await http.post("/api/sessions", json={})).json()["session"]["id"])


async def test_the_stream_is_hermes_own_and_the_turn_is_kept(http: httpx.AsyncClient, phone: Phone) -> None:
    path = f"/api/sessions/{await session(http)}/chat/stream"
    said = await http.post(path, json={"message": "WORDS:10 TOOL:terminal:echo hi", "system_message": "be brief"})
    events = [(name, orjson.loads(data)) for name, data in SseSplitter().feed(said.content)]
    assert [body["seq"] for _, body in events] == list(range(1, len(events) + 1))
    assert [events[0][0], events[-1][0]] == ["run.started", "done"]
    end = await phone.until("turn.completed")
    assert end.payload["turn_id"] == said.headers["x-talaria-turn"]
    assert end.payload["text"].endswith(next(body for name, body in events if name == "assistant.completed")["content"])


async def test_who_asked_is_gone_and_the_turn_goes_on(http: httpx.AsyncClient, phone: Phone, lab: Lab) -> None:
    path = f"/api/sessions/{await session(http)}/chat/stream"
    async with http.stream("POST", path, json={"message": "WORDS:30 DELAY:30"}) as said:
        assert await anext(said.aiter_raw())
    end = await phone.until("turn.completed")
    assert end.payload["text"] == " ".join(f"w{n}" for n in range(1, 31))
