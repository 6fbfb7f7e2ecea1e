"""Messages for the owner's devices: sent, followed by receipts, taken back. Whoever sends waits for the commit only.

Every caller is the owner, or a tool of theirs: what one may send, another may look at and take back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.clock import Clock
from app.db import Database, Tx
from app.delivery.acks import Acks
from app.delivery.drafts import Draft, encode
from app.delivery.errors import (
    DeviceUnknown,
    MailboxFull,
    MessageExpired,
    MessageUnknown,
    NobodyListens,
    QuotaExceeded,
)
from app.delivery.hub import Hub
from app.errors import IdReused
from app.once import store as once
from app.once.keys import Claim, key_of
from app.outbox import messages, store
from app.outbox.messages import Receipt, Stored, Waiting
from app.settings import MailboxSettings

# The dot is no character of a device's id, so no device can pass for the host.
OPERATOR, LINK = "host·operator", "host·link"
HOSTS = (OPERATOR, LINK)  # only a mailbox bounds what they send
QUOTA = (120, 60.0)  # messages of one device in this many seconds: far above a person, far below a flood
KINDS = ("message", "cron")


@dataclass(frozen=True, slots=True)
class Message:
    """A stored message with what became of it: one receipt for each device it was kept for."""

    stored: Stored
    receipts: list[Receipt]


class Quota:
    """What devices send, by the minute; in memory, since a restart forgives."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: dict[str, deque[float]] = {}

    def charge(self, sender: str) -> None:
        """Raises QuotaExceeded. Hosts have none."""
        if sender in HOSTS:
            return
        most, seconds = QUOTA
        now = self._clock.monotonic()
        recent = self._recent.setdefault(sender, deque(maxlen=most))
        if len(recent) == most and now - recent[0] < seconds:
            raise QuotaExceeded(retry_after=int(seconds - (now - recent[0])) + 1)
        recent.append(now)


class Messages:
    def __init__(
        self, db: Database, clock: Clock, hub: Hub, acks: Acks, quota: Quota, settings: MailboxSettings
    ) -> None:
        self._db, self._clock, self._hub, self._acks = db, clock, hub, acks
        self._quota, self._most = quota, settings.mailbox_max_count

    async def send(self, draft: Draft, *, sender: str, key: str | None = None) -> dict[str, Any]:
        """Keep it. Returns `{message_id, deliveries: [{device_id, seq}], refused?: [device_id]}`, the same for a copy.

        `sender` is OPERATOR, LINK or a device, which does not get its own message; `key` is what a copy is known by,
        else the `message_id` that the draft brings. `refused` are devices whose mailbox is full, where others had room.
        Raises DeviceUnknown, NobodyListens, MailboxFull, MessageTooBig, MessageExpired, QuotaExceeded, IdReused.
        """
        if draft.ttl_s is not None and draft.ttl_s <= 0:
            raise MessageExpired()
        self._quota.charge(sender)
        identity = draft.identity()
        claim = Claim(sender, "message", key_of("message", {"idempotency_key": key, **identity}, None), identity)
        said = draft.payload(self._clock.now())
        body, whole = encode(said)
        id: str = said["message_id"]

        def work(tx: Tx) -> dict[str, Any]:
            now = self._clock.now()
            return once.settled(tx, claim, now, lambda: self._keep(tx, draft, sender, id, body, whole, now))

        return await self._db.write(work)

    def _keep(
        self, tx: Tx, draft: Draft, sender: str, id: str, body: bytes, whole: bytes | None, now: float
    ) -> dict[str, Any]:
        if draft.message_id is not None and messages.payload(tx, id) is not None:
            raise IdReused("this message_id is taken")
        devices, refused = self._audience(tx, draft, sender)
        numbers = store.append(
            tx, devices, id=id, channel="messages", type="message", kind=draft.kind, body=body, whole=whole,
            now=now, wakes=draft.wake, sender=sender, expires_at=None if draft.ttl_s is None else now + draft.ttl_s,
        )  # fmt: skip
        tx.after_commit(lambda: self._hub.ring(numbers))
        deliveries = [{"device_id": device, "seq": seq} for device, seq in numbers.items()]
        return {"message_id": id, "deliveries": deliveries} | ({"refused": refused} if refused else {})

    def keep(self, tx: Tx, draft: Draft, *, sender: str, now: float, frame_id: str | None = None) -> None:
        """Part of the caller's work, which stores the message elsewhere too: so devices that take none, or whose
        mailbox is full, are left out. `frame_id`: of a further version of a message that was kept before.
        """
        said = draft.payload(now)
        body, whole = encode(said)
        try:
            devices, _ = self._audience(tx, draft, sender)
        except (NobodyListens, DeviceUnknown, MailboxFull):
            devices = []
        numbers = store.append(
            tx, devices, id=frame_id or said["message_id"], channel="messages", type="message", kind=draft.kind,
            body=body, whole=whole, now=now, wakes=draft.wake, sender=sender,
        )  # fmt: skip
        tx.after_commit(lambda: self._hub.ring(numbers))

    def _audience(self, tx: Tx, draft: Draft, sender: str) -> tuple[list[str], list[str]]:
        """(devices, those whose mailbox is full): one device, or all that take messages but the sender."""
        if draft.device_id is None:
            waiting = store.listening(tx, draft.kind)
            waiting.pop(sender, None)
            if not waiting:
                raise NobodyListens()
        else:
            count = store.waiting_for(tx, draft.device_id)
            if count is None:
                raise DeviceUnknown()
            waiting = {draft.device_id: count}
        full = [device for device, count in waiting.items() if count >= self._most]
        if len(full) == len(waiting):
            raise MailboxFull()
        return [device for device in waiting if device not in full], full

    # afterwards

    async def look(self, id: str) -> Message:
        """Raises MessageUnknown."""
        await self._acks.flush()  # what has been confirmed is not shown as waiting
        return await self._db.read(lambda tx: self._find(tx, id))

    async def cancel(self, id: str) -> list[str]:
        """Take it back where it was not confirmed yet; returns those devices. Raises MessageUnknown."""
        await self._acks.flush()

        def work(tx: Tx) -> list[str]:
            self._find(tx, id)
            return self._void(tx, [id])

        return await self._db.write(work)

    async def cancel_waiting(self) -> int:
        """Take back whatever some device has not confirmed; returns how many messages that were."""
        await self._acks.flush()

        def work(tx: Tx) -> int:
            ids = [one.id for one in messages.waiting(tx, self._clock.now(), self._most)]
            self._void(tx, ids)
            return len(ids)

        return await self._db.write(work)

    async def waiting(self, limit: int) -> list[Waiting]:
        """Messages that some device has not confirmed, oldest first."""
        await self._acks.flush()
        return await self._db.read(lambda tx: messages.waiting(tx, self._clock.now(), limit))

    async def backlog(self, devices: Iterable[str]) -> int:
        """How many frames wait for that of these devices for which most do."""

        def work(tx: Tx) -> int:
            return max((store.waiting_for(tx, device) or 0 for device in devices), default=0)

        return await self._db.read(work)

    def _find(self, tx: Tx, id: str) -> Message:
        stored = messages.payload(tx, id)
        if stored is None or stored.kind not in KINDS:
            raise MessageUnknown()
        return Message(stored, messages.receipts(tx, id, self._clock.now()))

    def _void(self, tx: Tx, ids: Iterable[str]) -> list[str]:
        taken = sorted({device for id in ids for device in messages.void(tx, id, "cancelled")})
        tx.after_commit(lambda: self._hub.ring(taken))
        return taken
