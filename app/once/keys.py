"""Which requests happen once, and what names them.

A type that is listed here is answered again when a client repeats it; one that is not listed never looks into the
database for this. The first of the named fields that the payload has is the key, else the frame's own id; without
either the request happens each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEYS: dict[str, tuple[str, ...]] = {
    "approval.respond": (),
    "chat.send": ("client_msg_id",),
    "chat.sessions.create": (),
    "chat.sessions.delete": (),
    "chat.sessions.fork": (),
    "chat.sessions.rename": (),
    "chat.stop": (),
    "chat.stream": (),  # POST …/chat/stream; its Idempotency-Key
    "message": ("idempotency_key", "message_id"),  # POST /messages; the first is its header
    "message.send": ("client_msg_id",),
    "question.answer": (),
    "proactive.reply": ("client_msg_id", "message_id"),
    "terminal.kill": (),
}


@dataclass(frozen=True, slots=True)
class Claim:
    """`principal` asks for `type` under `key`; `payload` is what it says, which no other request with the key may."""

    principal: str
    type: str
    key: str | None
    payload: Mapping[str, Any]


def key_of(type: str, payload: Mapping[str, Any], id: str | None) -> str | None:
    """Raises KeyError for a type that is not listed: whoever claims a key has declared it."""
    return next((payload[name] for name in KEYS[type] if payload.get(name)), id)
