"""Frames of a turn as bytes. An event's payload is encoded once; what differs between watchers is joined to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

from app.turns.state import TurnState
from app.wire.envelope import encode

MAX_PAYLOAD = 3 * 1024 * 1024  # bytes: a frame has at most 4 MiB
MAX_KEPT = 256 * 1024  # bytes of a kept payload
MAX_TOOLS = 200  # of a snapshot that would be too long
SCHEMA_VERSION = 1
TAIL = b"}"


def timestamp(now: float) -> bytes:
    """ISO 8601 with milliseconds, for all events of one read."""
    second, millisecond = divmod(int(now * 1000), 1000)
    return b"%b.%03dZ" % (_second(second), millisecond)


@lru_cache(maxsize=2)  # formatting a date takes longer than folding an event
def _second(second: int) -> bytes:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


def head(frame_id: str) -> bytes:
    """What goes before the body: `head + body + TAIL` is the frame."""
    return b'{"channel":"chat","type":"stream.event","id":%b,"payload":' % orjson.dumps(frame_id)


class Encoder:
    """Bodies of `stream.event` frames of one turn."""

    __slots__ = ("_prefix", "_turn_id")

    def __init__(self, turn_id: str, session_id: str) -> None:
        self._turn_id = turn_id
        self.rename(session_id)

    def rename(self, session_id: str) -> None:
        """The conversation has, from now on, this id."""
        self._prefix = b'{"type":"stream.event","schema_version":%d,"session_id":%b,"run_id":%b,"turn_id":%b,"seq":' % (
            SCHEMA_VERSION, orjson.dumps(session_id), orjson.dumps(self._turn_id), orjson.dumps(self._turn_id),
        )  # fmt: skip

    def body(self, n: int, name: str, payload: Mapping[str, Any], ts: bytes) -> bytes:
        encoded = orjson.dumps(payload)
        if len(encoded) > MAX_PAYLOAD:
            encoded = orjson.dumps({key: _shortened(value) for key, value in payload.items()} | {"truncated": True})
        return b'%b%d,"event":%b,"ts":"%b","payload":%b}' % (self._prefix, n, orjson.dumps(name), ts, encoded)


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value[: MAX_PAYLOAD // 4]  # a character has at most 4 bytes
    return value if len(orjson.dumps(value)) < MAX_KEPT else None


def snapshot_frame(turn_id: str, state: TurnState, frame_id: str | None = None) -> bytes:
    """`turn.snapshot`. One that would be too long loses most of its tools, and the ends of its text."""
    said = state.snapshot()
    payload = {"turn_id": turn_id, "session_id": state.session_id or None, "n": state.n, "state": said}
    frame = encode("chat", "turn.snapshot", payload, id=frame_id or turn_id)
    if len(frame) > MAX_PAYLOAD:
        said["tools"] = [tool.as_json("duration_s") for tool in state.tools.all[-MAX_TOOLS:]]
        said["reasoning"] = said["reasoning"][: MAX_KEPT // 4]
        said["text"], said["truncated"] = said["text"][: MAX_PAYLOAD // 6], True
        frame = encode("chat", "turn.snapshot", payload, id=frame_id or turn_id)
    return frame


def end_type(finish: str) -> str:
    return "turn.failed" if finish in ("failed", "uncertain") else "turn.completed"


def end_payload(turn_id: str, state: TurnState, now: float) -> dict[str, Any]:
    """Payload of the kept turn.completed or turn.failed, at most MAX_KEPT bytes: reasoning is cut first, then text."""
    payload: dict[str, Any] = {
        "turn_id": turn_id, "session_id": state.session_id or None, "text": str(state.text), "finish": state.finish,
        "duration_s": round(max(0.0, now - state.started_at), 1),
    }  # fmt: skip
    if state.reasoning:
        payload["reasoning"] = "".join(state.reasoning)
    if state.usage is not None:
        payload["usage"] = state.usage
    if state.error is not None:
        payload["error"] = state.error
    if state.room < 0:
        payload["truncated"] = True
    while (excess := len(orjson.dumps(payload)) - MAX_KEPT) > 0:
        payload["truncated"] = True
        field = "reasoning" if payload.get("reasoning") else "text"
        raw, length = payload[field].encode(), len(orjson.dumps(payload[field]))
        keep = len(raw) * max(0, length - excess) // length  # JSON escapes make some characters longer
        payload[field] = raw[:keep].decode(errors="ignore")
    return payload
