"""The events of an answer, as hermes-agent 0.19 sends them."""

from __future__ import annotations

import json

import pytest

from app.demo import texts
from app.demo.stand_in import StandIn
from tests.demo.client import Client

ENVELOPE = {"session_id", "run_id", "seq", "ts"}
FIELDS = {
    "run.started": {"user_message"},
    "message.started": {"message"},
    "assistant.delta": {"message_id", "delta"},
    "tool.progress": {"message_id", "tool_name", "delta"},
    "tool.started": {"message_id", "tool_name", "preview", "args"},
    "tool.completed": {"message_id", "tool_name", "preview", "args"},
    "assistant.completed": {"message_id", "content", "completed", "partial", "interrupted"},
    "run.completed": {"message_id", "completed", "messages", "usage"},
    "done": set(),
}
PLAIN = [
    "run.started",
    "message.started",
    "assistant.delta",
    "tool.progress",
    "assistant.completed",
    "run.completed",
    "done",
]


async def test_a_plain_answer(client: Client) -> None:
    stream = await client.ask("SAY:one two three")
    assert stream.names == PLAIN
    assert [event.data["delta"] for event in stream.all("assistant.delta")] == ["one", " two", " three"]
    assert stream.one("tool.progress")["tool_name"] == "_thinking"
    assert stream.one("assistant.completed")["content"] == "one two three"
    run = stream.one("run.completed")
    assert run["messages"] == [
        {"role": "assistant", "content": "one two three", "finish_reason": "stop", "reasoning": None}
    ]
    assert run["usage"]["total_tokens"] == run["usage"]["input_tokens"] + run["usage"]["output_tokens"] > 0
    assert [event.data["seq"] for event in stream.events] == list(range(1, len(stream.events) + 1))
    assert len({event.data["run_id"] for event in stream.events}) == 1


@pytest.mark.parametrize("message", ["hello", "tools"])
async def test_every_payload_has_the_fields_of_the_real_one(client: Client, message: str) -> None:
    for event in (await client.ask(message)).events:
        assert set(event.data) == FIELDS[event.name] | ENVELOPE, event.name


async def test_the_headers_of_a_stream(client: Client) -> None:
    async with client.http.stream(
        "POST", f"{client.session}/chat/stream", json={"input": "SAY:x"}, headers={"X-Hermes-Session-Key": "user-42"}
    ) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["x-hermes-session-id"] == client.session_id
        assert response.headers["x-hermes-session-key"] == "user-42"
        assert "x-frame-options" not in response.headers


async def test_each_event_is_a_chunk_of_its_own(client: Client) -> None:
    stream = await client.ask("hello")
    assert len(stream.pieces) == len(stream.events)


@pytest.mark.parametrize("word", sorted(texts.WORDS))
async def test_each_word_that_is_offered_does_something(client: Client, word: str) -> None:
    plain = await client.ask("hello")
    stream = await client.ask(f"Show me: {word}!")
    assert (stream.text, stream.names) != (plain.text.replace("hello", f"Show me: {word}!"), plain.names)
    assert f"`{word}`" in texts.guide()


async def test_tools(client: Client) -> None:
    stream = await client.ask("tools")
    tool = ["tool.started", "tool.completed"]
    said = ["assistant.delta", "tool.progress"]
    assert stream.names == [*PLAIN[:4], *tool, *said, *tool, *said, *PLAIN[4:]]
    assert [event.data["tool_name"] for event in stream.all("tool.started")] == ["terminal", "web_search"]
    assert stream.all("tool.started")[0].data["args"] == {"command": "uname -n"}
    assert all(event.data["args"] is event.data["preview"] is None for event in stream.all("tool.completed"))
    segments = [texts.TOOLS_BEFORE, texts.TOOLS_BETWEEN, texts.TOOLS_AFTER]
    assert stream.text == "\n\n".join(segments)
    assert [event.data["delta"] for event in stream.all("tool.progress")] == segments
    assert stream.one("assistant.completed")["content"] == texts.TOOLS_AFTER

    rows = (await client.rows())[1:]
    assert [row["role"] for row in rows] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert [row["finish_reason"] for row in rows] == ["tool_calls", None, "tool_calls", None, "stop"]
    assert rows[0]["tool_calls"][0]["id"] == rows[1]["tool_call_id"]
    assert json.loads(rows[0]["tool_calls"][0]["function"]["arguments"]) == {"command": "uname -n"}
    for message, row in zip(stream.one("run.completed")["messages"], rows, strict=True):
        assert message.items() <= row.items()


async def test_long_is_long_and_its_copy_is_short(client: Client) -> None:
    stream = await client.ask("long")
    assert len(stream.text.split()) > 2_500
    assert len(stream.one("tool.progress")["delta"]) == 500


async def test_a_provider_failure_looks_like_success(client: Client) -> None:
    stream = await client.ask("fail")
    assert stream.names == ["run.started", "message.started", "assistant.completed", "run.completed", "done"]
    completed, run = stream.one("assistant.completed"), stream.one("run.completed")
    assert completed["content"].startswith("HTTP 400: ")
    assert (completed["completed"], run["completed"]) == (True, True)
    assert run["messages"] == []
    assert run["usage"] == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert await client.told() == [("user", "fail")]


async def test_a_crash_is_an_error_and_done(client: Client) -> None:
    stream = await client.ask("error")
    assert stream.names == ["run.started", "message.started", "error", "done"]
    assert set(stream.one("error")) == {"message"} | ENVELOPE
    assert await client.told() == [("user", "error")]


async def test_reasoning_is_in_the_stored_message_only(client: Client) -> None:
    stream = await client.ask("reasoning SAY:42")
    (message,) = stream.one("run.completed")["messages"]
    assert message["reasoning"] == message["reasoning_content"] == texts.REASONING
    assert stream.names == PLAIN
    assert (await client.rows())[-1]["reasoning"] == texts.REASONING


async def test_a_compressed_conversation_goes_on_elsewhere(client: Client) -> None:
    await client.ask("SAY:before")
    stream = await client.ask("moved SAY:after")
    moved_to = stream.one("assistant.completed")["session_id"]
    assert moved_to != client.session_id
    assert stream.one("run.completed")["session_id"] == moved_to
    assert stream.one("done")["session_id"] == client.session_id
    child = (await client.http.get(f"/api/sessions/{moved_to}")).json()["session"]
    assert child["parent_session_id"] == client.session_id
    rows = await client.rows(moved_to)
    assert [row["content"] for row in rows] == ["SAY:before", "before", "moved SAY:after", "after"]
    old = (await client.http.get(client.session)).json()["session"]
    assert (old["end_reason"], old["message_count"]) == ("compression", 3)


async def test_unknown_events_and_comments(client: Client) -> None:
    stream = await client.ask("custom keepalive SAY:one two")
    assert {"custom.preview", "memory.updated"} <= set(stream.names)
    assert stream.comments == [": keepalive"]
    assert stream.text == "one two"


async def test_silence_is_filled_with_comments(client: Client, stand_in: StandIn) -> None:
    stand_in.agent.keepalive_s = 0.001
    stand_in.agent.gate.clear()
    async with client.begin("gated SAY:one two") as pieces:
        async for piece in pieces:
            if piece == b": keepalive\n\n":
                break
        stand_in.agent.gate.set()
        assert b"event: done" in b"".join([piece async for piece in pieces])


async def test_split_cuts_characters_in_two(client: Client) -> None:
    stream = await client.ask("split")
    assert stream.text == texts.UNICODE
    assert max(len(piece) for piece in stream.pieces) == 7

    def is_torn(piece: bytes) -> bool:
        try:
            piece.decode()
        except UnicodeDecodeError:
            return True
        return False

    assert any(is_torn(piece) for piece in stream.pieces)


async def test_bench_sends_the_time_of_each_delta(client: Client) -> None:
    stream = await client.ask("bench:200:0:32")
    assert stream.names == ["run.started", "assistant.delta", "assistant.completed", "run.completed", "done"]
    deltas = [event.data["delta"] for event in stream.all("assistant.delta")]
    times = [int(delta.split(" ")[0].removeprefix("t=")) for delta in deltas]
    assert len(deltas) == 200
    assert times == sorted(times)
    assert all(delta.endswith(" " + "x" * 32) for delta in deltas)
    assert stream.one("assistant.completed")["content"] == ""
    assert stream.one("run.completed")["usage"]["output_tokens"] == 200


async def test_bench_keeps_its_interval(client: Client) -> None:
    stream = await client.ask("bench:5:2")
    times = [int(event.data["delta"].split(" ")[0].removeprefix("t=")) for event in stream.all("assistant.delta")]
    assert times[-1] - times[0] >= 4 * 2_000_000


async def test_bench_needs_no_session_that_was_created(client: Client) -> None:
    client.session_id = "any-7"
    assert len((await client.ask("bench:3:0")).all("assistant.delta")) == 3


async def test_words_and_delay(client: Client) -> None:
    assert (await client.ask("WORDS:3 DELAY:1")).text == "w1 w2 w3"


async def test_what_is_to_be_said_does_not_steer(client: Client) -> None:
    assert (await client.ask("SAY:fail http500 gated\\nend")).text == "fail http500 gated\nend"
