"""POST /v1/chat/completions, streamed or not. Whoever hangs up in mid-stream interrupts the turn."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from typing import Any

import orjson
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from app.clock import Clock
from app.demo.about import MODEL
from app.demo.agent import Agent
from app.demo.reading import read_script
from app.demo.refusal import Refusal
from app.demo.requests import Body, Json, The, offered, refused_with, require_key, session_headers, text_of
from app.demo.script import Call
from app.demo.stream import EventStream, Outlet
from app.demo.surface import Surface
from app.demo.turn import Turn

EMOJI = {"terminal": "💻", "web_search": "🔍"}
router = APIRouter(dependencies=[Depends(require_key), Depends(offered("chat_completions"))])


class Completion(Surface):
    """A turn in the words of OpenAI's chunks, with Hermes' own event for tools."""

    def __init__(self, clock: Clock, model: str, outlet: Outlet) -> None:
        self._outlet = outlet
        self._base = {
            "id": f"chatcmpl-{uuid.uuid4().hex[:29]}",
            "object": "chat.completion.chunk",
            "created": int(clock.now()),
            "model": model,
        }

    def replies(self) -> None:
        self._chunk({"role": "assistant"})

    def said(self, text: str) -> None:
        self._chunk({"content": text})

    def tool_began(self, call: Call, call_id: str) -> None:
        shown = {"emoji": EMOJI.get(call.name, "🔧"), "label": call.preview}
        self._tool({"tool": call.name, **shown, "toolCallId": call_id, "status": "running"})

    def tool_ended(self, call: Call, call_id: str, result: str, seconds: float) -> None:
        self._tool({"tool": call.name, "toolCallId": call_id, "status": "completed"})

    def cut(self) -> None:
        self._outlet.hang_up()

    def completed(self, turn: Turn) -> None:
        self._chunk({}, "stop", usage=usage_of(turn))
        self._outlet.write(b"data: [DONE]\n\n")

    def failed(self, turn: Turn, text: str) -> None:
        self.crashed(text)

    def crashed(self, text: str) -> None:
        flags = {"completed": False, "partial": False, "failed": True, "error": text, "error_code": "agent_error"}
        self._chunk({}, "error", error={"message": text, "type": "server_error"}, hermes=flags)
        self._outlet.write(b"data: [DONE]\n\n")

    def ended(self) -> None:
        self._outlet.end()

    async def room(self) -> None:
        await self._outlet.room()

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._outlet.write(b"data: %b\n\n" % orjson.dumps(self._base | {"choices": [choice]} | more))

    def _tool(self, payload: dict[str, Any]) -> None:
        self._outlet.write(b"event: hermes.tool.progress\ndata: %b\n\n" % orjson.dumps(payload))


@router.post("/v1/chat/completions")
async def complete(agent: The, body: Body, request: Request) -> Response:
    session_id, message = _conversation(body, request)
    script = read_script(message)
    model = str(body.get("model") or MODEL)
    agent.submitted(session_id, message)
    if script.refuse is not None:
        agent.refused()
        raise refused_with(script.refuse)
    headers = session_headers(session_id, request)
    if not body.get("stream"):
        turn = agent.begin(session_id, message, script, Surface())
        return await _whole(turn, model, agent, headers)
    outlet = Outlet(split=script.split)
    turn = agent.begin(session_id, message, script, Completion(agent.clock, model, outlet))
    outlet.when_left_early(turn.interrupt)
    return EventStream(agent, outlet, headers)


async def _whole(turn: Turn, model: str, agent: Agent, headers: dict[str, str]) -> Response:
    await asyncio.wait({turn.task})
    if turn.crashed or turn.task.cancelled():
        raise refused_with(500)
    message = {"role": "assistant", "content": turn.content}
    completion = {
        "id": f"chatcmpl-{uuid.uuid4().hex[:29]}",
        "object": "chat.completion",
        "created": int(agent.clock.now()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage_of(turn),
    }
    return Json(completion, headers=headers)


def usage_of(turn: Turn) -> dict[str, int]:
    usage = turn.usage
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }


def _conversation(body: dict[str, Any], request: Request) -> tuple[str, str]:
    """Which conversation, and the last message. Without the header it is named by how it began."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise Refusal(400, "Missing or invalid 'messages' field", None)
    system = next((str(each.get("content")) for each in messages if each.get("role") == "system"), "")
    first = next((str(each.get("content")) for each in messages if each.get("role") == "user"), "")
    derived = "api-" + hashlib.sha256(f"{system}\n{first}".encode()).hexdigest()[:16]
    return request.headers.get("x-hermes-session-id") or derived, text_of(messages[-1].get("content"))
