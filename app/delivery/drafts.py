"""A message before it is kept, and what of it fits into a frame."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.delivery.errors import MessageTooBig
from app.delivery.keep import MAX_BODY

MAX_TEXT = 1024 * 1024  # bytes of a message's text; what a frame cannot hold is fetched with GET /messages/{id}
ROOM_FOR_THE_REST = 16 * 1024  # bytes of a kept payload that its other fields may need


@dataclass(frozen=True, slots=True)
class Draft:
    """`extra` are fields of the payload that only some clients read. `ttl_s` None: as long as the mailbox keeps it."""

    text: str
    title: str | None = None
    device_id: str | None = None  # None: every device that takes messages
    chat_id: str | None = None
    thread_id: str | None = None
    kind: str = "message"
    source: str = "script"
    wake: bool = True
    ttl_s: int | None = None
    message_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """What makes a copy a copy."""
        return {name: getattr(self, name) for name in self.__slots__}

    def payload(self, now: float) -> dict[str, Any]:
        """Of the `message` frame; the id is made here when none came. It says when: it may be read days later."""
        said = {
            "message_id": self.message_id or f"msg-{secrets.token_hex(12)}", "chat_id": self.chat_id,
            "thread_id": self.thread_id, "text": self.text, "title": self.title, "source": self.source,
            "sent_at": now,
        }  # fmt: skip
        return {name: value for name, value in (said | self.extra).items() if value is not None}


def encode(said: dict[str, Any]) -> tuple[bytes, bytes | None]:
    """(kept, whole): the text is cut where a frame cannot hold it. Raises MessageTooBig."""
    text: str = said["text"]
    if len(text) > MAX_TEXT or len(text.encode()) > MAX_TEXT:
        raise MessageTooBig(f"a message's text has at most {MAX_TEXT} bytes")
    rest = len(orjson.dumps(said | {"text": "", "truncated": True}))
    if rest > ROOM_FOR_THE_REST:
        raise MessageTooBig(f"everything but the text has at most {ROOM_FOR_THE_REST} bytes")
    whole = orjson.dumps(said)
    if len(whole) <= MAX_BODY:
        return whole, None
    return orjson.dumps(said | {"text": fitting(text, MAX_BODY - rest), "truncated": True}), whole


def fitting(text: str, room: int) -> str:
    """The longest beginning, nearly, that takes at most `room` bytes as JSON: what is escaped grows up to sixfold."""
    while (size := len(orjson.dumps(text)) - 2) > room:
        text = text[: min(len(text) - 1, len(text) * room // size)]
    return text
