"""The envelope: one JSON text frame. Parsed by hand, since this runs for every keystroke."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import orjson

from app.errors import FrameInvalid

MAX_FRAME = 4 * 1024 * 1024  # bytes of one frame, as the protocol promises
MAX_ID = 128
MAX_NAME = 64  # channel and type: no name of ours is longer


@dataclass(frozen=True, slots=True)
class Envelope:
    """One frame. `seq` marks the frames a device must acknowledge; the rest may be lost."""

    channel: str
    type: str
    id: str | None
    payload: Mapping[str, Any]
    seq: int | None = None

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Raises FrameInvalid, whose `ref` is the frame's id where one could be read."""
        if len(raw) > MAX_FRAME:
            raise FrameInvalid(f"a frame has at most {MAX_FRAME} bytes")
        try:
            frame = orjson.loads(raw)
        except orjson.JSONDecodeError as exc:
            raise FrameInvalid("a frame must be JSON") from exc
        if type(frame) is not dict:
            raise FrameInvalid("a frame must be a JSON object")
        id_ = frame.get("id")
        if id_ is not None and (type(id_) is not str or len(id_) > MAX_ID):
            raise FrameInvalid(f"id must be a string of at most {MAX_ID} characters")
        channel, type_, payload = frame.get("channel"), frame.get("type"), frame.get("payload")
        if type(channel) is not str or type(type_) is not str or len(channel) > MAX_NAME or len(type_) > MAX_NAME:
            raise _invalid("channel and type must be short strings", id_)
        if payload is None:
            payload = {}
        elif type(payload) is not dict:
            raise _invalid("payload must be an object", id_)
        return cls(channel, type_, id_, payload)


def _invalid(message: str, ref: str | None) -> FrameInvalid:
    error = FrameInvalid(message)
    error.ref = ref
    return error


def encode(
    channel: str, type_: str, payload: Mapping[str, Any], *, id: str | None = None, seq: int | None = None
) -> bytes:
    """JSON text as UTF-8. Payload values must be JSON already; floats that are not finite become null."""
    frame: dict[str, Any] = {"channel": channel, "type": type_, "id": id, "payload": payload}
    if id is None:
        del frame["id"]
    if seq is not None:
        frame["seq"] = seq
    return orjson.dumps(frame)
