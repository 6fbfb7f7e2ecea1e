"""A turn belongs to the agent: what becomes of it when the client, the connection or the agent goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from app.demo.agent import Agent
from app.demo.stand_in import StandIn, serve_stand_in
from tests.demo.client import Client
from tests.demo.conftest import KEY


async def read_until(pieces: AsyncIterator[bytes], what: bytes) -> None:
    async for piece in pieces:
        if what in piece:
            return
    raise AssertionError(f"{what!r} did not come")


async def test_the_gate_holds_a_turn_before_its_second_delta(client: Client, stand_in: StandIn) -> None:
    agent = stand_in.agent
    agent.gate.clear()
    async with client.begin("gated SAY:one two") as pieces:
        await read_until(pieces, b'"delta":"one"')
        await agent.gated()
        assert await client.told() == [("user", "gated SAY:one two")]
        agent.gate.set()
        assert b"event: done" in b"".join([piece async for piece in pieces])


async def test_an_answer_of_one_word_waits_at_the_gate_too(client: Client, stand_in: StandIn) -> None:
    agent = stand_in.agent
    agent.gate.clear()
    async with client.begin("gated SAY:one") as pieces:
        await agent.gated()
        agent.gate.set()
        assert b"event: done" in b"".join([piece async for piece in pieces])


async def test_a_turn_outlives_its_reader(client: Client, stand_in: StandIn) -> None:
    agent = stand_in.agent
    agent.gate.clear()
    async with client.begin("gated SAY:one two three") as pieces:
        await read_until(pieces, b'"delta":"one"')
    await agent.until(lambda: agent.aborted == 1 and agent.open == 0)
    assert agent.turns_running == 1
    agent.gate.set()
    await agent.idle()
    assert await client.told() == [("user", "gated SAY:one two three"), ("assistant", "one two three")]
    assert (await client.rows())[-1]["finish_reason"] == "stop"


async def test_two_turns_at_once_on_one_session(client: Client, stand_in: StandIn) -> None:
    agent = stand_in.agent
    agent.gate.clear()
    first = asyncio.ensure_future(client.ask("gated SAY:first answer"))
    second = asyncio.ensure_future(client.ask("gated SAY:second answer"))
    await agent.gated(2)
    agent.gate.set()
    assert {(await first).text, (await second).text} == {"first answer", "second answer"}
    assert [role for role, _ in await client.told()] == ["user", "user", "assistant", "assistant"]
    ids = [row["id"] for row in await client.rows()]
    assert ids == sorted(ids)


@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_cut_connection_does_not_end_the_turn(client: Client, stand_in: StandIn, count: int) -> None:
    message = f"cut:{count} SAY:one two three"
    stream = await client.ask(message)
    assert isinstance(stream.broken, httpx.RemoteProtocolError)
    assert len(stream.all("assistant.delta")) == count
    await stand_in.agent.idle()
    assert await client.told() == [("user", message), ("assistant", "one two three")]
    assert stand_in.agent.aborted == 0


async def test_a_lost_turn_leaves_only_its_user_row(client: Client, stand_in: StandIn) -> None:
    stream = await client.ask("cut:1 lost SAY:one two")
    assert stream.broken is not None
    await stand_in.agent.idle()
    assert await client.told() == [("user", "cut:1 lost SAY:one two")]


@pytest.mark.parametrize(("mark", "last"), [("nodone", "tool.progress"), ("done-only", "done")])
async def test_a_stream_without_an_end(client: Client, stand_in: StandIn, mark: str, last: str) -> None:
    stream = await client.ask(f"{mark} SAY:one two")
    assert stream.broken is None
    assert stream.names[-1] == last
    assert not stream.all("run.completed")
    assert (await client.told())[-1] == ("assistant", "one two")
    await client.ask(f"{mark} lost SAY:three")
    await stand_in.agent.idle()
    assert (await client.told())[-1] == ("user", f"{mark} lost SAY:three")


@pytest.mark.parametrize(
    ("status", "code", "retry_after"),
    [(429, "rate_limit_exceeded", "1"), (500, "internal_error", None), (503, "gateway_draining", "1")],
)
async def test_refusals_count_as_submitted(
    client: Client, stand_in: StandIn, status: int, code: str, retry_after: str | None
) -> None:
    answer = await client.http.post(f"{client.session}/chat/stream", json={"message": f"http{status}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers.get("retry-after") == retry_after
    assert stand_in.agent.turns_started == [(client.session_id, f"http{status}")]
    assert await client.told() == []
    await stand_in.agent.idle()


async def test_a_stopping_agent_ends_streams_with_done_and_may_come_back(client: Client, stand_in: StandIn) -> None:
    agent = stand_in.agent
    agent.gate.clear()
    async with client.begin("gated SAY:one two") as pieces:
        await read_until(pieces, b'"delta":"one"')
        await agent.stop_turns()
        rest = b"".join([piece async for piece in pieces])
    assert rest.startswith(b"event: done\n")
    assert rest.count(b"event: ") == 1
    assert await client.told() == [("user", "gated SAY:one two")]
    refused = await client.http.post(f"{client.session}/chat/stream", json={"message": "hello"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_draining")


async def test_a_restart_keeps_sessions_and_shows() -> None:
    agent = Agent(delay_s=0)
    seen, listed = [], []
    port = 0
    for _ in range(2):
        async with serve_stand_in(KEY, port, agent=agent) as served:
            port = int(served.url.rpartition(":")[2])
            async with httpx.AsyncClient(base_url=served.url, headers={"Authorization": f"Bearer {KEY}"}) as http:
                health = (await http.get("/health/detailed")).json()
                seen.append((health["pid"], health["platforms"]["api_server"]["updated_at"]))
                client = await Client.with_session(http)
                assert (await client.ask("SAY:x")).text == "x"
                listed = (await http.get("/api/sessions")).json()["data"]
    assert len(set(seen)) == 2
    assert len(listed) == 2


async def test_leaving_does_not_wait_for_open_turns() -> None:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as http:
        async with serve_stand_in(KEY, delay_s=0) as served:
            http.base_url = httpx.URL(served.url)
            client = await Client.with_session(http)
            served.agent.gate.clear()
            asking = asyncio.ensure_future(client.ask("gated SAY:one two"))
            await served.agent.gated()
        assert (await asking).names[-1] == "done"
        with pytest.raises(httpx.ConnectError):
            await http.get("/health")


async def test_a_port_that_is_taken(stand_in: StandIn) -> None:
    with pytest.raises(OSError, match="in use"):
        async with serve_stand_in(KEY, int(stand_in.url.rpartition(":")[2])):
            pass


async def test_chat_without_a_stream(client: Client, stand_in: StandIn) -> None:
    answer = await client.http.post(f"{client.session}/chat", json={"message": "tools"})
    body = answer.json()
    assert set(body) == {"object", "session_id", "message", "usage"}
    assert body["object"] == "hermes.session.chat.completion"
    assert body["message"]["content"].startswith("Done.")
    assert answer.headers["x-hermes-session-id"] == client.session_id
    assert (await client.http.post(f"{client.session}/chat", json={"message": "error"})).status_code == 500
    assert len(stand_in.agent.turns_started) == 2
