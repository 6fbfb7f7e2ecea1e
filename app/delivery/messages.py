"""Messages for the owner's devices: sent, followed by receipts, taken back. Whoever sends waits for the commit only."""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.clock import Clock
from app.db import Database, Tx
from app.delivery.errors import DeviceUnknown, MailboxFull, MessageTooBig, MessageUnknown, NobodyListens, QuotaExceeded
from app.delivery.hub import Hub
from app.delivery.keep import MAX_BODY
from app.once import store as once
from app.outbox import messages, store
from app.outbox.messages import Receipt, Stored, Waiting
from app.settings import MailboxSettings

MAX_TEXT = 1024 * 1024  # bytes of a message's text; what a frame cannot hold is fetched with GET /messages/{id}
ROOM_FOR_THE_REST = 16 * 1024  # bytes of a kept payload that its other fields may need
QUOTA = (120, 60.0)  # messages of one device in this many seconds: far above a person, far below a flood
HOST_SENDERS = ("operator", "link")  # they fill a mailbox at most


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


@dataclass(frozen=True, slots=True)
class Sent:
    message_id: str
    deliveries: dict[str, int]  # device → number in its mailbox

    def as_json(self) -> dict[str, Any]:
        rows = [{"device_id": device, "seq": seq} for device, seq in sorted(self.deliveries.items())]
        return {"message_id": self.message_id, "deliveries": rows}


class Messages:
    def __init__(self, db: Database, clock: Clock, hub: Hub, settings: MailboxSettings) -> None:
        self._db, self._clock, self._hub, self._settings = db, clock, hub, settings
        self._recent: dict[str, deque[float]] = {}

    async def send(self, draft: Draft, *, sender: str, key: str | None = None) -> dict[str, Any]:
        """Keep it; returns Sent as JSON, the same for a copy with the same key. `sender`: operator, link or a device.

        Raises DeviceUnknown, NobodyListens, MailboxFull, MessageTooBig, QuotaExceeded, IdReused, StorageFull.
        """
        said = _said(draft)
        body, whole = _encode(said)

        def work(tx: Tx) -> dict[str, Any]:
            now = self._clock.now()
            if key is not None and (before := once.find(tx, sender, "message", key, _identity(draft))) is not None:
                return before
            self._charge(sender)
            answer = self._keep(tx, draft, said["message_id"], body, whole, sender, now).as_json()
            if key is not None:
                once.record(tx, sender, "message", key, _identity(draft), answer, now)
            return answer

        return await self._db.write(work)

    def _keep(
        self, tx: Tx, draft: Draft, message_id: str, body: bytes, whole: bytes | None, sender: str, now: float
    ) -> Sent:
        if messages.payload(tx, message_id) is not None:
            raise MessageUnknown("this message_id is taken")
        devices = self._devices(tx, draft, sender)
        numbers = store.append(
            tx, devices, id=message_id, channel="messages", type="message", kind=draft.kind, body=body, whole=whole,
            now=now, wakes=draft.wake, sender=sender, expires_at=None if draft.ttl_s is None else now + draft.ttl_s,
        )  # fmt: skip
        tx.after_commit(lambda: self._hub.ring(numbers))
        return Sent(message_id, numbers)

    def _devices(self, tx: Tx, draft: Draft, sender: str) -> list[str]:
        """One device, or all but the one that sends. Raises for none, and for those whose mailbox is full."""
        if draft.device_id is None:
            devices = store.audience_of(tx, draft.kind, but=sender)
            if not devices:
                raise NobodyListens()
        else:
            devices = [draft.device_id]
        open_ones = [device for device in devices if self._has_room(tx, device)]
        if not open_ones:
            raise MailboxFull()
        return open_ones

    def _has_room(self, tx: Tx, device_id: str) -> bool:
        box = store.mailbox(tx, device_id)
        if box is None:
            raise DeviceUnknown()
        return box.waiting < self._settings.mailbox_max_count

    def _charge(self, sender: str) -> None:
        if sender in HOST_SENDERS:
            return
        most, seconds = QUOTA
        now = self._clock.monotonic()
        recent = self._recent.setdefault(sender, deque(maxlen=most))
        if len(recent) == most and now - recent[0] < seconds:
            raise QuotaExceeded(retry_after=int(seconds - (now - recent[0])) + 1)
        recent.append(now)

    # afterwards

    async def look(self, message_id: str, *, by: str) -> tuple[Stored, list[Receipt]]:
        """Raises MessageUnknown, also for a device that neither sent nor gets it."""

        def work(tx: Tx) -> tuple[Stored, list[Receipt]]:
            return self._visible(tx, message_id, by)

        return await self._db.read(work)

    async def cancel(self, message_id: str, *, by: str) -> list[str]:
        """Take it back where it was not confirmed yet; returns those devices. Raises MessageUnknown."""

        def work(tx: Tx) -> list[str]:
            stored, _ = self._visible(tx, message_id, by)
            if by not in (*HOST_SENDERS, stored.sender):
                raise MessageUnknown()
            taken = list(messages.void(tx, message_id, "cancelled"))
            tx.after_commit(lambda: self._hub.ring(taken))
            return taken

        return await self._db.write(work)

    async def waiting(self, limit: int) -> list[Waiting]:
        """Messages that some device has not confirmed, oldest first."""
        return await self._db.read(lambda tx: messages.waiting(tx, self._clock.now(), limit))

    def _visible(self, tx: Tx, message_id: str, by: str) -> tuple[Stored, list[Receipt]]:
        stored = messages.payload(tx, message_id)
        receipts = messages.receipts(tx, message_id, self._clock.now())
        if stored is None or stored.kind not in ("message", "cron"):
            raise MessageUnknown()
        if by not in (*HOST_SENDERS, stored.sender) and by not in {receipt.device_id for receipt in receipts}:
            raise MessageUnknown()
        return stored, receipts


def _said(draft: Draft) -> dict[str, Any]:
    """The payload of a `message` frame."""
    said = {
        "message_id": draft.message_id or f"msg-{secrets.token_hex(12)}", "chat_id": draft.chat_id,
        "thread_id": draft.thread_id, "text": draft.text, "title": draft.title, "source": draft.source,
    }  # fmt: skip
    return {name: value for name, value in (said | draft.extra).items() if value is not None}


def _identity(draft: Draft) -> dict[str, Any]:
    """What makes a copy a copy; the id is made here when none came."""
    return {name: getattr(draft, name) for name in Draft.__slots__}


def _encode(said: dict[str, Any]) -> tuple[bytes, bytes | None]:
    """(kept, whole): cut where a frame cannot hold it. Raises MessageTooBig."""
    text = said["text"].encode()
    if len(text) > MAX_TEXT:
        raise MessageTooBig(f"a message's text has at most {MAX_TEXT} bytes")
    body = orjson.dumps(said)
    if len(body) <= MAX_BODY:
        return body, None
    rest = len(orjson.dumps(said | {"text": ""}))
    if rest > ROOM_FOR_THE_REST:
        raise MessageTooBig(f"everything but the text has at most {ROOM_FOR_THE_REST} bytes")
    short = text[: MAX_BODY // 2 - rest].decode(errors="ignore")  # half: JSON may double what it escapes
    cut = orjson.dumps(said | {"text": short, "truncated": True})
    if len(cut) > MAX_BODY:  # control characters grow sixfold
        cut = orjson.dumps(said | {"text": short[: MAX_BODY // 8], "truncated": True})
    return cut, body
