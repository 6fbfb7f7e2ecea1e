"""POST /v1/chat/completions, as hermes-agent 0.19 answers it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.demo.stand_in import StandIn
from tests.demo.client import Client
from tests.demo.test_routes import error_of

CHUNK = {"id", "object", "created", "model", "choices"}


def said(message: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": "Arr."}, {"role": "user", "content": message}]} | fields


def blocks_of(body: str) -> list[str]:
    return body.split("\n\n")[:-1]


async def test_an_answer_in_chunks(client: Client) -> None:
    headers = {"X-Hermes-Session-Id": "mine", "X-Hermes-Session-Key": "user-42"}
    message = said("PRE:running\nTOOL:terminal:echo hi", stream=True, model="m")
    answer = await client.http.post("/v1/chat/completions", json=message, headers=headers)
    assert answer.headers["content-type"] == "text/event-stream"
    assert (answer.headers["x-hermes-session-id"], answer.headers["x-hermes-session-key"]) == ("mine", "user-42")
    *blocks, done = blocks_of(answer.text)
    assert done == "data: [DONE]"
    tools = [
        json.loads(block.split("data: ")[1]) for block in blocks if block.startswith("event: hermes.tool.progress")
    ]
    assert [list(tool) for tool in tools] == [
        ["tool", "emoji", "label", "toolCallId", "status"],
        ["tool", "toolCallId", "status"],
    ]
    assert [tool["status"] for tool in tools] == ["running", "completed"]
    chunks = [json.loads(block.removeprefix("data: ")) for block in blocks if block.startswith("data: ")]
    assert all(set(chunk) - {"usage"} == CHUNK and chunk["model"] == "m" for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert (deltas[0], deltas[-1]) == ({"role": "assistant"}, {})
    assert "".join(delta.get("content", "") for delta in deltas).startswith("running\n\ntool said: ")
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert set(chunks[-1]["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert [row["role"] for row in await client.rows("mine")] == ["user", "assistant", "tool", "assistant"]


async def test_an_answer_as_a_whole_in_a_conversation_named_by_its_beginning(client: Client) -> None:
    answers = [await client.http.post("/v1/chat/completions", json=said("SAY:x")) for _ in range(2)]
    body = answers[0].json()
    assert set(body) == CHUNK | {"usage"}
    assert body["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "x"},
        "finish_reason": "stop",
    }
    (session_id,) = {answer.headers["x-hermes-session-id"] for answer in answers}
    assert session_id.startswith("api-")
    assert len(await client.rows(session_id)) == 4


async def test_a_failure_says_so(client: Client) -> None:
    answer = await client.http.post("/v1/chat/completions", json=said("fail", stream=True))
    chunk = json.loads(blocks_of(answer.text)[-2].removeprefix("data: "))
    assert chunk["choices"][0]["finish_reason"] == "error"
    assert (chunk["hermes"]["failed"], chunk["error"]["message"][:8]) == (True, "HTTP 400")


async def test_who_hangs_up_interrupts_the_turn(client: Client, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    message = said("gated SAY:one two", stream=True)
    async with client.http.stream("POST", "/v1/chat/completions", json=message) as response:
        async for piece in response.aiter_raw():
            if b'"one"' in piece:
                break
        session_id = response.headers["x-hermes-session-id"]
    await stand_in.agent.idle()
    last = (await client.rows(session_id))[-1]
    assert (last["content"], last["finish_reason"]) == ("one", None)


@pytest.mark.parametrize(("body", "status"), [({}, 400), ({"messages": ["x"]}, 400), (said("http429"), 429)])
async def test_what_is_refused(client: Client, body: dict[str, Any], status: int) -> None:
    assert error_of(await client.http.post("/v1/chat/completions", json=body))[0] == status
