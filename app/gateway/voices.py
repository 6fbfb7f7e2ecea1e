"""How a kept frame is said to a client that acknowledges, and to an older one that only knows messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import orjson

from app.clock import Clock
from app.outbox.store import Kept
from app.wire.envelope import encode


class Voice(Protocol):
    """`asks`: the client is asked by a ping whether it has what was written before, since it cannot acknowledge."""

    asks: bool

    def frames(self, page: Sequence[Kept]) -> Iterator[tuple[int, bytes | None]]:
        """(number, frame): what goes out for a page, in order. None: nothing is said, but the number is passed."""

    def caught_up(self, epoch: str, head: int) -> bytes:
        """Said once everything missed has been."""


class Acknowledging:
    asks = False

    def frames(self, page: Sequence[Kept]) -> Iterator[tuple[int, bytes | None]]:
        first: Kept | None = None  # of a run of void numbers
        last = 0
        for kept in page:
            if first is not None and kept.void != first.void:
                yield last, _void(first, last)
                first = None
            if kept.void is None:
                yield kept.seq, _envelope(kept)
                continue
            first, last = first or kept, kept.seq
        if first is not None:
            yield last, _void(first, last)

    def caught_up(self, epoch: str, head: int) -> bytes:
        return encode("system", "synced", {"epoch": epoch, "head": head})


class Older:
    """`phone.message` on the `proactive` channel, the backlog marked as such."""

    asks = True

    def __init__(self, head: int, clock: Clock) -> None:
        self._head = head  # what was kept when the client subscribed is backlog
        self._clock = clock
        self._count = 0

    def frames(self, page: Sequence[Kept]) -> Iterator[tuple[int, bytes | None]]:
        for kept in page:
            if kept.void is not None or kept.type != "message":
                yield kept.seq, None
                continue
            backlog = kept.seq <= self._head
            self._count += backlog
            yield kept.seq, encode("proactive", "phone.message", phone_message(kept, backlog=backlog), id=kept.id)

    def caught_up(self, epoch: str, head: int) -> bytes:
        ts = int(self._clock.now() * 1000)
        return encode("proactive", "proactive.backlog.complete", {"count": self._count, "ts": ts})


def phone_message(kept: Kept, *, backlog: bool) -> dict[str, Any]:
    """The payload that older clients know; times in milliseconds."""
    body: dict[str, Any] = orjson.loads(kept.body)
    said = {
        "message_id": kept.id, "chat_id": body.get("chat_id"), "text": body["text"], "title": body.get("title"),
        "surfacing": body.get("surfacing"), "reply_to": body.get("reply_to"), "metadata": body.get("metadata") or {},
        "sent_at": int(kept.created_at * 1000),
    }  # fmt: skip
    return said | ({"queued_delivery": True} if backlog else {})


def _envelope(kept: Kept) -> bytes:
    """The stored payload is JSON already; only the envelope is put around it."""
    head = encode(kept.channel, kept.type, {}, id=kept.id)
    return head[: -len(b"{}}")] + kept.body + b',"seq":' + str(kept.seq).encode() + b"}"


def _void(first: Kept, last: int) -> bytes:
    return encode("system", "void", {"from": first.seq, "to": last, "reason": first.void}, seq=last)
