"""Payloads of the threads of Hermes' messaging gateway."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from app.wire.payloads import Id, Key, OptionalId, Payload

MAX_TEXT = 65_536  # characters, as of a turn's message
MAX_MEDIA = 10


class _OfThread(Payload):
    chat_id: Id = "home"
    thread_id: OptionalId = None


class MessageSend(_OfThread):
    """What the owner says in a chat, or a `/command`."""

    text: Annotated[str, StringConstraints(max_length=MAX_TEXT)] = ""
    media: Annotated[tuple[Id, ...], Field(max_length=MAX_MEDIA)] = ()
    reply_to: OptionalId = None
    client_msg_id: Key | None = None


class ThreadsList(Payload):
    limit: int = Field(50, ge=1, le=200)
    cursor: Annotated[str, StringConstraints(max_length=2048)] | None = None


class ThreadsHistory(_OfThread):
    """Without a `cursor`: the newest page."""

    limit: int = Field(50, ge=1, le=200)
    cursor: Annotated[str, StringConstraints(max_length=32, pattern=r"^[0-9]{1,18}$")] | None = None


class ThreadsRead(_OfThread):
    """Up to `message_id`, or all."""

    message_id: Id | None = None
