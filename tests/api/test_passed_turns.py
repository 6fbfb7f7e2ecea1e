"""The streamed chat of a session over Hermes' own API: for its client Hermes' bytes, for the owner's devices a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from app.demo.stand_in import StandIn
from app.wire.sse import SseSplitter
from tests.api.passing import KEY, Passed, over_stand_in

WAIT_S = 15.0
SESSION = "s1"
STREAM = f"/api/sessions/{SESSION}/chat/stream"


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Passed, StandIn]]:
    async with over_stand_in(tmp_path) as (passed, hermes):
        assert (await passed.http.post("/api/sessions", json={"id": SESSION})).status_code == 201
        yield passed, hermes


def names(raw: bytes) -> list[str]:
    return [name for name, _ in SseSplitter().feed(raw)]


async def test_its_client_gets_hermes_bytes_and_a_device_the_turn(both: tuple[Passed, StandIn]) -> None:
    passed, _ = both
    said = await passed.http.post(STREAM, json={"message": "SAY:日本語 split", "system_message": "be brief"})
    assert said.headers["content-type"] == "text/event-stream"
    assert said.headers["x-hermes-session-id"] == SESSION
    events = SseSplitter().feed(said.content)
    assert [name for name, _ in events][:2] == ["run.started", "message.started"]
    assert [name for name, _ in events][-3:] == ["assistant.completed", "run.completed", "done"]
    numbers = [orjson.loads(data)["seq"] for _, data in events]
    assert numbers == list(range(1, len(numbers) + 1))  # Hermes' own, all of them
    began = await passed.phone.event("run.started")
    assert began.payload["turn_id"] == said.headers["x-talaria-turn"]
    end = await passed.phone.until("turn.completed")
    assert end.payload["turn_id"] == said.headers["x-talaria-turn"]
    assert end.payload["text"] == "日本語 split"
    assert end.seq == 1


async def test_a_client_that_hangs_up_does_not_end_the_turn(both: tuple[Passed, StandIn]) -> None:
    passed, hermes = both
    hermes.agent.gate.clear()
    async with passed.http.stream("POST", STREAM, json={"input": "gated SAY:all of it"}) as said:
        assert b"run.started" in await anext(said.aiter_raw())
    hermes.agent.gate.set()
    assert (await passed.phone.until("turn.completed")).payload["text"] == "all of it"
    assert hermes.agent.aborted == 0


async def test_a_key_is_good_for_one_turn(both: tuple[Passed, StandIn]) -> None:
    passed, _ = both
    key = {"Idempotency-Key": "k1"}
    assert (await passed.http.post(STREAM, json={"message": "SAY:once"}, headers=key)).status_code == 200
    copy = await passed.http.post(STREAM, json={"message": "SAY:once"}, headers=key)
    assert (copy.status_code, copy.json()["error"]["code"]) == (409, "turn_known")
    other = await passed.http.post(STREAM, json={"message": "SAY:other"}, headers=key)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "id_reused")
    assert (await rows(passed)) == ["user", "assistant"]


async def rows(passed: Passed) -> list[str]:
    found = (await passed.http.get(f"/api/sessions/{SESSION}/messages")).json()["data"]
    return [row["role"] for row in found]


async def test_turns_of_one_session_run_in_order(both: tuple[Passed, StandIn]) -> None:
    passed, _ = both
    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(passed.http.post(STREAM, json={"message": f"SAY:{number}"}))
    assert await rows(passed) == ["user", "assistant"] * 3


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/sessions/nobody/chat/stream", {"message": "hi"}),
        (STREAM, {}),
        (STREAM, {"message": ""}),
        (STREAM, {"message": [{"type": "file", "file": {}}]}),
        (STREAM, {"message": [{"type": "media", "media_id": "x"}]}),
        (STREAM, {"message": "http429"}),
        (STREAM, {"message": "http503"}),
        (STREAM, {"message": "http500"}),
        (STREAM, ["hi"]),
    ],
)
async def test_refusals_are_hermes_own(both: tuple[Passed, StandIn], path: str, body: Any) -> None:
    passed, hermes = both
    async with httpx.AsyncClient(base_url=hermes.url, headers={"Authorization": f"Bearer {KEY}"}) as direct:
        expected = await direct.post(path, json=body)
    said = await passed.http.post(path, json=body)
    assert expected.status_code >= 400
    assert (said.status_code, said.content) == (expected.status_code, expected.content)
    assert said.headers["content-type"] == expected.headers["content-type"]
    assert said.headers.get("retry-after") == expected.headers.get("retry-after")


async def test_a_body_that_is_no_json_and_one_that_is_too_long(both: tuple[Passed, StandIn]) -> None:
    passed, _ = both
    said = await passed.http.post(STREAM, content=b"{nonsense")
    assert (said.status_code, said.json()["error"]["message"]) == (400, "Invalid JSON in request body")
    said = await passed.http.post(STREAM, content=b" " * 10_000_001)
    assert (said.status_code, said.json()["error"]["code"]) == (413, "body_too_large")


async def test_a_profile_of_a_hermes_that_has_one_is_that_one(both: tuple[Passed, StandIn]) -> None:
    passed, _ = both
    said = await passed.http.post(f"/p/work{STREAM}", json={"message": "SAY:mine"})
    assert names(said.content)[-1] == "done"
    assert (await passed.phone.until("turn.completed")).payload["text"] == "mine"


async def test_the_end_of_the_session_ends_the_stream_and_not_the_turn(both: tuple[Passed, StandIn]) -> None:
    passed, hermes = both
    tablet = await passed.relay.connect(device_id="tablet")
    hermes.agent.gate.clear()
    async with passed.http.stream("POST", STREAM, json={"message": "gated SAY:on"}) as said:
        pieces = said.aiter_raw()
        assert await anext(pieces)
        sessions = passed.relay.relay.sessions
        mine = next(one for one in await sessions.list() if one.device_id != "tablet")
        await sessions.revoke(mine.prefix, actor="operator")
        rest = b"".join([piece async for piece in pieces])
    assert names(rest)[-1] == "error"
    assert b'"code":"session_revoked"' in rest
    hermes.agent.gate.set()
    assert (await tablet.until("turn.completed")).payload["text"] == "on"


async def test_a_client_that_stops_reading_is_let_go_and_the_turn_goes_on(both: tuple[Passed, StandIn]) -> None:
    passed, _ = both
    host, _, port = passed.relay.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    body = orjson.dumps({"message": "bench:3000:0:8000"})
    writer.write(
        f"POST {STREAM} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {passed.phone.token}\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    end = await asyncio.wait_for(passed.phone.until("turn.completed"), 60)
    assert end.payload["truncated"]
    said = await asyncio.wait_for(reader.read(), WAIT_S)
    while part := await asyncio.wait_for(reader.read(1 << 20), WAIT_S):
        said = said[-10_000:] + part
    writer.close()
    assert b'"code":"listener_behind"' in said[-1000:]
    assert said.endswith(b"0\r\n\r\n")


async def test_a_turn_that_is_taken_back_while_it_waits(both: tuple[Passed, StandIn]) -> None:
    passed, hermes = both
    hermes.agent.gate.clear()
    async with passed.http.stream("POST", STREAM, json={"message": "gated SAY:first"}) as first:
        assert await anext(first.aiter_raw())
        async with asyncio.TaskGroup() as group:
            second = group.create_task(passed.http.post(STREAM, json={"message": "SAY:second"}))
            running = await _waiting(passed, 2)
            await passed.phone.send("chat", "chat.stop", turn_id=running[1]["turn_id"])
            said = await second
    hermes.agent.gate.set()
    assert (said.status_code, said.json()["error"]["code"]) == (409, "turn_stopped")


async def _waiting(passed: Passed, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(WAIT_S):
        while True:
            running = passed.relay.relay.turns.running(str(passed.phone.auth["device_id"]))
            if len(running) == count:
                return running
            await passed.phone.ping()
