"""The least phone there is: pairs with a code, says one thing, prints the answer as it comes, and leaves.

It agrees to whatever it is asked, and takes the first of the choices.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, TextIO
from uuid import uuid4

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from app.errors import RelayError

ENDS = ("turn.completed", "turn.failed")
SUPPORTS = {"delivery": 1, "turns": 1, "typed_stream_events": True, "event_schema_version": 1}


class DemoFailed(RelayError):
    """The demo's phone got no answer."""

    code = "demo_failed"


@dataclass(slots=True)
class Transcript:
    """Prints a conversation, and knows how long it took."""

    out: TextIO
    is_inside: bool = False  # of a line of the answer
    is_thinking: bool = False
    first_words: float | None = None  # seconds after the question
    asked_at: float = 0.0

    def thought(self, text: str) -> None:
        if not self.is_thinking:
            self.line("[thinks]")
            self.is_thinking = True
        self._write(text)
        self.is_inside = True

    def line(self, text: str) -> None:
        self._write(("\n" if self.is_inside else "") + text + "\n")
        self.is_inside = self.is_thinking = False

    def words(self, text: str) -> None:
        if self.is_thinking:
            self.line("[says]")
        text = text if self.is_inside else text.lstrip("\n")  # the blank line between segments is a line's end here
        if not text:
            return
        if self.first_words is None:
            self.first_words = time.perf_counter() - self.asked_at
        self._write(text)
        self.is_inside = not text.endswith("\n")

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


async def converse(url: str, code: str, message: str, out: TextIO = sys.stdout) -> bool:
    """Whether the turn was completed. `url` is the relay's base URL. Raises DemoFailed."""
    transcript = Transcript(out)
    try:
        async with connect(url.replace("http", "ws", 1) + "/ws", compression=None, proxy=None, max_size=None) as socket:
            await _pair(socket, code, transcript)
            transcript.asked_at = time.perf_counter()
            await _send(socket, "chat", "chat.send", message=message, client_msg_id=uuid4().hex)
            transcript.line(f"you>     {message}")
            return await _listen(socket, transcript)
    except (OSError, WebSocketException) as exc:
        raise DemoFailed(f"the connection to the relay failed: {exc}") from exc


async def _pair(socket: ClientConnection, code: str, transcript: Transcript) -> None:
    started = time.perf_counter()
    phone = {"pairing_code": code, "device_name": "demo phone", "client_surface": "cli", "supports": SUPPORTS}
    await _send(socket, "system", "auth", **phone)
    async for frame in _frames(socket):
        if frame["type"] == "auth.ok":
            transcript.line(f"[paired in {time.perf_counter() - started:.2f} s]")
            return
        if frame["type"] == "auth.fail":
            raise DemoFailed(f"pairing failed: {frame['payload'].get('reason')}")
    raise DemoFailed("the relay closed the connection before it had paired")


async def _listen(socket: ClientConnection, transcript: Transcript) -> bool:
    async for frame in _frames(socket):
        payload = frame["payload"]
        match frame["type"]:
            case "stream.event":
                _show(transcript, payload["event"], payload["payload"])
            case "approval.request" if payload["state"] == "open":
                transcript.line(f"[asks: may it run `{payload['summary']}`? yes, once]")
                await _send(socket, "chat", "approval.respond", approval_id=payload["approval_id"], choice="once")
            case "question.ask":
                answer = (payload.get("choices") or ["I do not know"])[0]
                transcript.line(f"[asks: {payload['text']} {answer}]")
                await _send(socket, "chat", "question.answer", question_id=payload["question_id"], answer=answer)
            case type_ if type_ in ENDS:
                took = time.perf_counter() - transcript.asked_at
                first = f", first words after {transcript.first_words:.2f} s" if transcript.first_words else ""
                transcript.line(f"[{payload['finish']}{first}, all of it after {took:.2f} s]")
                return bool(payload["finish"] == "completed")
            case "error":
                raise DemoFailed(f"the relay refused: {payload.get('message')}")
    raise DemoFailed("the relay closed the connection before the answer had ended")


def _show(transcript: Transcript, event: str, payload: Mapping[str, Any]) -> None:
    match event:
        case "message.started":
            transcript.line("hermes>")
        case "assistant.delta":
            transcript.words(payload["delta"])
        case "reasoning.delta":
            transcript.thought(payload["delta"])
        case "tool.started":
            transcript.line(f"[{payload.get('tool_name')}: {payload.get('preview') or 'started'}]")
        case "tool.failed":
            transcript.line(f"[{payload.get('tool_name')} failed]")


async def _frames(socket: ClientConnection) -> AsyncIterator[dict[str, Any]]:
    async for raw in socket:
        yield orjson.loads(raw)


async def _send(socket: ClientConnection, channel: str, type_: str, **payload: Any) -> None:
    frame = {"channel": channel, "type": type_, "id": uuid4().hex, "payload": payload}
    await socket.send(orjson.dumps(frame).decode())
