"""Chat completions against streams as Hermes 0.19 was recorded to send them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from app.hermes.completions import Completions
from app.hermes.errors import SessionNotFound, StreamBroken, UpstreamUnsupported
from app.hermes.hermes import Hermes
from app.hermes.lease import Lease
from app.hermes.upstream import Followed, Order
from app.settings import HermesSettings
from app.tasks import Supervisor
from tests.hermes_client.routed import Heard, Routed, capabilities, routed, said, streamed

ROWS = "GET /api/sessions/s1/messages"
CHAT = "POST /v1/chat/completions"
USAGE = {"prompt_tokens": 25534, "completion_tokens": 19, "total_tokens": 25553}
DONE = "data: [DONE]"


def delta(finish: str | None = None, usage: Any = None, **fields: Any) -> str:
    said = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    return "data: " + json.dumps(said | ({"usage": usage} if usage else {}))


def tool(**fields: Any) -> str:
    return f"event: hermes.tool.progress\ndata: {json.dumps(fields)}"


STREAM = streamed(
    delta(role="assistant"),
    delta(content="running"),
    tool(tool="terminal", emoji="x", label="echo hi", toolCallId="c1", status="running"),
    tool(tool="terminal", toolCallId="c1", status="completed"),
    delta(content="\n\ntool said"),
    delta("stop", USAGE),
    DONE,
)


@asynccontextmanager
async def opened(answers: Mapping[str, Sequence[bytes]], **options: Any) -> AsyncIterator[tuple[Routed, Hermes]]:
    stored = {ROWS: [said({"session_id": "s1", "data": []})]}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(routed({**stored, **answers}, **options))
        tasks = await stack.enter_async_context(Supervisor())
        hermes = await stack.enter_async_context(Hermes(HermesSettings(hermes_api_url=server.url), tasks))
        yield server, hermes


async def leased(hermes: Hermes, session_id: str = "s1") -> tuple[Completions, Lease]:
    completions = hermes.upstream("completions")
    assert isinstance(completions, Completions)
    return completions, await hermes.lease(completions, session_id, Order("hi"))


async def test_a_turn() -> None:
    async with opened({CHAT: [STREAM]}) as (server, hermes):
        completions, lease = await leased(hermes)
        heard = Heard()
        await completions.run(lease, Order("hi", model="m"), heard)
        assert lease.drop_interrupts
        assert heard.runs == [None]
        (route, headers, body) = server.requests[-1]
        assert (route, headers["x-hermes-session-id"]) == (CHAT, "s1")
        assert body == {"stream": True, "model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert heard.all == [
        ("assistant.delta", {"delta": "running"}),
        ("tool.started", {"tool_id": "c1", "tool_name": "terminal", "preview": "echo hi"}),
        ("tool.completed", {"tool_id": "c1", "tool_name": "terminal"}),
        ("assistant.delta", {"delta": "\n\ntool said"}),
        (
            "run.completed",
            {"completed": True, "usage": {"input_tokens": 25534, "output_tokens": 19, "total_tokens": 25553}},
        ),
        ("done", {}),
    ]


@pytest.mark.parametrize(
    ("extra", "error"),
    [
        ({"error": {"message": "HTTP 400: no", "type": "agent_error"}, "hermes": {"failed": True}}, "HTTP 400: no"),
        ({"hermes": {"failed": True, "error": "no"}}, "no"),
        ({}, None),
    ],
)
async def test_a_failure_is_none_of_the_answer(extra: dict[str, Any], error: str | None) -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]} | extra
    async with opened({CHAT: [streamed(delta(content="x"), f"data: {json.dumps(last)}", DONE)]}) as (_, hermes):
        completions, lease = await leased(hermes)
        heard = Heard()
        await completions.run(lease, Order("hi"), heard)
        assert heard.all[1:] == [("run.failed", {"error": error}), ("done", {})]


async def test_thoughts_and_nonsense() -> None:
    blocks = [delta(reasoning_content="hm"), "data: {", 'data: {"choices": 7}', 'data: {"choices": [7]}', DONE]
    async with opened({CHAT: [streamed(*blocks)]}) as (_, hermes):
        completions, lease = await leased(hermes)
        heard = Heard()
        await completions.run(lease, Order("hi"), heard)
        assert heard.all == [("reasoning.delta", {"delta": "hm"}), ("message", None), ("done", {})]


async def test_stop_drops_the_stream_and_says_so() -> None:
    begun = streamed(delta(content="w1"), ends=False)
    async with opened({CHAT: [begun]}, held=frozenset([CHAT])) as (server, hermes), asyncio.TaskGroup() as group:
        completions, lease = await leased(hermes)
        heard = Heard()
        assert not await completions.stop(lease)
        running = group.create_task(completions.run(lease, Order("hi"), heard))
        await heard.until("assistant.delta")
        assert await completions.stop(lease)
        await running
        assert heard.all[-2:] == [("run.cancelled", {}), ("done", {})]
        async with asyncio.timeout(10):
            await server.dropped.wait()
        assert not await completions.stop(lease)


async def test_a_dropped_stream_ends_the_turn() -> None:
    async with opened({CHAT: [streamed(delta(content="w1"), ends=False)]}) as (_, hermes):
        completions, lease = await leased(hermes)
        with pytest.raises(StreamBroken):
            await completions.run(lease, Order("hi"), Heard())
        assert await completions.follow(lease, Order("hi"), Heard()) is Followed.GONE


@pytest.mark.parametrize(("ended", "now", "moved"), [("compression", "s2", ["s2"]), ("branched", "s1", [])])
async def test_a_compressed_conversation_goes_on_where_hermes_went_on_and_a_forked_one_where_it_is(
    ended: str, now: str, moved: list[str]
) -> None:
    answers = {
        CHAT: [STREAM], ROWS: [said({"session_id": "s2", "data": []})],
        "GET /api/sessions/s1": [said({"session": {"id": "s1", "end_reason": ended}})],
        "GET /api/sessions/s2": [said({"session": {"id": "s2", "parent_session_id": "s1"}})],
    }  # fmt: skip
    async with opened(answers) as (server, hermes):
        completions, lease = await leased(hermes)
        heard = Heard()
        await completions.run(lease, Order("hi"), heard)
        assert server.requests[-1][1]["x-hermes-session-id"] == now
        assert [body["session_id"] for _, body in heard.all if body and "session_id" in body] == moved


async def test_a_hermes_that_keeps_no_sessions_takes_an_id_of_ours() -> None:
    bare = capabilities()
    bare["endpoints"] = {"chat_completions": bare["endpoints"]["chat_completions"]}
    async with opened({CHAT: [STREAM], "GET /v1/capabilities": [said(bare)]}) as (server, hermes):
        completions = hermes.upstream("completions")
        made, other = [(await completions.create(Order("hi")))["id"] for _ in range(2)]
        assert made != other
        _, lease = await leased(hermes, made)
        await completions.run(lease, Order("hi"), Heard())
        assert server.requests[-1][1]["x-hermes-session-id"] == made
        assert not server.bodies("POST /api/sessions")


async def test_otherwise_hermes_makes_the_session() -> None:
    async with opened({"POST /api/sessions": [said({"session": {"id": "s7"}}, "201 Created")]}) as (server, hermes):
        assert (await hermes.upstream("completions").create(Order("hi", model="m")))["id"] == "s7"
        assert server.bodies("POST /api/sessions") == [{"model": "m"}]


@pytest.mark.parametrize("session_id", ["a\r\nX-Evil: 1", "a\x00", " a"])
async def test_an_id_that_no_header_can_carry_is_no_session(session_id: str) -> None:
    async with opened({}) as (_, hermes):
        hermes.rows.read(session_id, [])
        with pytest.raises(SessionNotFound):
            await leased(hermes, session_id)


async def test_without_the_header_that_continues_a_conversation_there_is_none() -> None:
    bare = capabilities()
    del bare["features"]["session_continuity_header"]
    async with opened({"GET /v1/capabilities": [said(bare)]}) as (_, hermes):
        with pytest.raises(UpstreamUnsupported):
            await leased(hermes)


async def test_it_asks_nothing() -> None:
    async with opened({}) as (_, hermes):
        completions, lease = await leased(hermes)
        with pytest.raises(UpstreamUnsupported):
            await completions.decide(lease, "once")
        with pytest.raises(UpstreamUnsupported):
            await completions.answer(lease, "q", "yes")
