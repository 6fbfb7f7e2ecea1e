"""Uploaded pictures of a message: named by the device, checked when it is accepted, in it when it goes to Hermes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from app.db import Tx
from app.hermes.upstream import Order
from app.turns.errors import MessageTooLong

MAX_COUNT = 16  # uploaded pictures of one message, as in a message to the messaging gateway
MAX_PICTURES = 9_000_000  # characters of all in one message: Hermes takes bodies of 10,000,000 bytes

Part = Mapping[str, Any]


class Pictures(Protocol):
    """Uploaded files, as far as turns need them. Both raise RelayError for what is gone, or is no picture."""

    def admit_pictures(self, tx: Tx, tokens: Sequence[str]) -> int:
        """How many characters they have as `data:` URLs."""

    async def picture(self, token: str) -> str:
        """As a `data:` URL."""


def admit(tx: Tx, pictures: Pictures, message: str | Sequence[Part]) -> None:
    """Part of a work. Raises MessageTooLong, and what `Pictures` does."""
    if isinstance(message, str) or not (tokens := [part["media_id"] for part in message if _is_media(part)]):
        return
    if len(tokens) > MAX_COUNT:  # each is looked up while every other write waits
        raise MessageTooLong(f"one message has at most {MAX_COUNT} uploaded pictures")
    given = sum(len(part["image_url"]["url"]) for part in message if part["type"] == "image_url")
    if pictures.admit_pictures(tx, tokens) + given > MAX_PICTURES:
        raise MessageTooLong(
            f"the pictures of one message have at most {MAX_PICTURES // 4 * 3} bytes together: send smaller ones"
        )


async def inlined(order: Order, pictures: Pictures) -> Order:
    """As Hermes takes it. Raises what `Pictures` does."""
    if isinstance(order.message, str) or not any(map(_is_media, order.message)):
        return order
    return replace(order, message=[await _as_url(part, pictures) for part in order.message])


async def _as_url(part: Part, pictures: Pictures) -> Part:
    if not _is_media(part):
        return part
    return {"type": "image_url", "image_url": {"url": await pictures.picture(part["media_id"])}}


def _is_media(part: Part) -> bool:
    return bool(part["type"] == "media")
