"""What of a request is kept as a turn's message. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from pydantic import ValidationError

from app.turns.errors import MessageTooLong
from app.turns.state import Json
from app.wire.depth import is_too_deep
from app.wire.payloads import ChatSend, MediaPart, TextPart

MAX_TEXT = 65_536  # characters; Hermes cuts what is longer, without saying so
_SAID = ("message", "input")  # Hermes takes the first that is there


def check(payload: ChatSend) -> None:
    """Raises MessageTooLong."""
    if max(map(len, _texts(payload)), default=0) > MAX_TEXT:
        raise MessageTooLong(f"a message has at most {MAX_TEXT} characters")


def kept(said: Json, frame_id: str | None) -> Json:
    """Of a `chat.send`."""
    found = said | {"frame_id": frame_id}
    return {key: found[key] for key in ("message", "model", "profile", "frame_id") if found.get(key) is not None}


def kept_of_body(raw: bytes, profile: str | None, session_key: str | None) -> Json | None:
    """Of a body for Hermes' own streamed chat. None for what is no message as turns know them: Hermes says why not."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict) or is_too_deep(body, len(raw)):
        return None
    message = body.get(_SAID[0]) or body.get(_SAID[1])
    try:
        payload = ChatSend.model_validate({"message": message})
        check(payload)
    except (ValidationError, MessageTooLong):
        return None
    if not isinstance(payload.message, str) and any(isinstance(part, MediaPart) for part in payload.message):
        return None
    passed: dict[str, Any] = {"body": {name: value for name, value in body.items() if name not in _SAID}}
    passed |= {} if session_key is None else {"session_key": session_key}
    return {"message": message, "passed": passed} | ({} if profile is None else {"profile": profile})


def _texts(payload: ChatSend) -> Iterable[str]:
    if isinstance(payload.message, str):
        return (payload.message,)
    return (part.text for part in payload.message if isinstance(part, TextPart))
