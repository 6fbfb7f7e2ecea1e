"""What must arrive, one numbered mailbox per device.

Numbers run 1, 2, 3 … without gaps inside an epoch and are given in the transaction that stores the frame, so whoever
reads `seq > cursor` can never skip one. A payload is stored once and numbered for each device that gets it. A number
is never taken out of the middle: what may no longer be shown is void and keeps it. Retention drops only a prefix.

A mailbox also knows when its device is to be woken: appending a waking frame makes a push due, an acknowledgement
takes it back (`claim` and what follows it are in wakes.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from app.db import Tx
from app.outbox.kinds import KINDS

GRACE_S = 5.0  # a phone that is awake acknowledges within a second; this long after, it is taken to sleep

_OPEN = text(
    "INSERT INTO mailboxes (device_id, epoch, head, acked, audience) VALUES (:device, :epoch, 0, 0, 'none') "
    "ON CONFLICT (device_id) DO NOTHING"
)
_JOIN = text(
    "UPDATE mailboxes SET audience = :audience WHERE device_id = :device AND audience <> :audience "
    "AND audience <> 'all'"
)
_STATE = text("SELECT epoch, head, acked, floor, audience, foreground_until FROM mailboxes WHERE device_id = :device")
# A device that was revoked gets nothing new; one whose session has only expired may pair again and find it.
PAIRED = "EXISTS (SELECT 1 FROM sessions s WHERE s.device_id = m.device_id AND s.revoked_at IS NULL)"  # of mailboxes m
_LISTENING = text(
    "SELECT device_id, head - MAX(acked, floor) FROM mailboxes m WHERE audience IN ('all', :older) "
    f"AND {PAIRED} ORDER BY device_id"
)
_ONE_LISTENING = text(f"SELECT head - MAX(acked, floor) FROM mailboxes m WHERE device_id = :device AND {PAIRED}")
_STORE = text(
    "INSERT INTO payloads (payload_id, channel, type, kind, body, whole, wakes, sender, created_at, expires_at) "
    "VALUES (:id, :channel, :type, :kind, :body, :whole, :wakes, :sender, :now, :expires)"
)
_NUMBER = text("UPDATE mailboxes SET head = head + 1 WHERE device_id = :device RETURNING head")
_NUMBER_AND_WAKE = text(
    "UPDATE mailboxes SET head = head + 1, wake_seq = head + 1, wake_stored_at = :now, "
    # Not later than it was, and sooner if it was put off: what is new may be worth more than what waits.
    "wake_at = MIN(COALESCE(wake_at, :now + :grace), :now + :grace) WHERE device_id = :device RETURNING head"
)
_APPEND = text("INSERT INTO outbox (device_id, seq, payload_id) VALUES (:device, :seq, :id)")
_AFTER = text(
    "SELECT o.seq, p.payload_id, p.channel, p.type, p.kind, p.body, p.created_at, p.wakes, "
    "COALESCE(o.void, CASE WHEN p.expires_at <= :now THEN 'expired' END) "
    "FROM outbox o JOIN payloads p USING (payload_id) "
    "WHERE o.device_id = :device AND o.seq > :after ORDER BY o.seq LIMIT :limit"
)
_ID_AT = text("SELECT payload_id FROM outbox WHERE device_id = :device AND seq = :seq")
_ACK = text(
    "UPDATE mailboxes SET acked = :seq, sent = MAX(sent, :seq), tries = 0, wake_at = CASE "
    "WHEN wake_seq <= :seq OR wake_at IS NULL THEN NULL ELSE wake_stored_at + :grace END "
    "WHERE device_id = :device AND epoch = :epoch AND acked < :seq AND head >= :seq"
)
_VOIDED = text(
    "UPDATE outbox SET void = :reason WHERE device_id = :device AND seq = :seq AND void IS NULL "
    "AND seq > (SELECT acked FROM mailboxes m WHERE m.device_id = :device AND m.epoch = :epoch)"
)
_SENT = text(
    "UPDATE mailboxes SET sent = :seq WHERE device_id = :device AND epoch = :epoch AND sent < :seq AND head >= :seq"
)
_HUSH = text("UPDATE payloads SET wakes = 0 WHERE payload_id = :id")
_RAISE = text(
    "INSERT INTO links (device_id, instance, generation) VALUES (:device, :instance, 1) "
    "ON CONFLICT (device_id, instance) DO UPDATE SET generation = links.generation + 1 RETURNING generation"
)
_GENERATION = text("SELECT generation FROM links WHERE device_id = :device AND instance = :instance")


@dataclass(frozen=True, slots=True)
class Mailbox:
    epoch: str
    head: int  # the last number given
    acked: int  # the last number the device has confirmed
    floor: int  # the last number that retention has dropped
    audience: str  # none, messages or all
    foreground_until: float | None

    @property
    def listens(self) -> bool:
        return self.audience == "all"


@dataclass(frozen=True, slots=True)
class Kept:
    """A frame that must arrive; `body` is the payload as JSON. `void` says why it is not shown."""

    seq: int
    id: str
    channel: str
    type: str
    kind: str
    body: bytes
    created_at: float
    wakes: bool
    void: str | None


def open_mailbox(tx: Tx, device_id: str) -> None:
    tx.execute(_OPEN, {"device": device_id, "epoch": secrets.token_hex(8)})


def join_audience(tx: Tx, device_id: str, audience: str = "all") -> None:
    """`all`: every kept kind, for clients that acknowledge. `messages`: for those that only know messages."""
    tx.execute(_JOIN, {"device": device_id, "audience": audience})


def mailbox(tx: Tx, device_id: str) -> Mailbox | None:
    row = tx.one(_STATE, {"device": device_id})
    return None if row is None else Mailbox(*row)


def listening(tx: Tx, kind: str) -> dict[str, int]:
    """The devices that a kind is kept for, with how many frames each has not confirmed."""
    rows = tx.all(_LISTENING, {"older": "messages" if KINDS[kind].for_older else "all"})
    return {row[0]: row[1] for row in rows}


def waiting_for(tx: Tx, device_id: str) -> int | None:
    """How many frames this device has not confirmed; None if it is not paired."""
    row = tx.one(_ONE_LISTENING, {"device": device_id})
    return None if row is None else int(row[0])


def append(
    tx: Tx, devices: Sequence[str], *, id: str, channel: str, type: str, kind: str, body: bytes, now: float,
    wakes: bool, sender: str | None = None, expires_at: float | None = None, whole: bytes | None = None,
) -> dict[str, int]:  # fmt: skip
    """Store one payload and number it for each device. Returns device → seq; devices without a mailbox get none.

    `whole` is the payload before it was cut to what a frame may hold.
    """
    numbers: dict[str, int] = {}
    stored = {"id": id, "channel": channel, "type": type, "kind": kind, "body": body, "wakes": int(wakes)}
    tx.execute(_STORE, stored | {"whole": whole, "sender": sender, "now": now, "expires": expires_at})
    for device in sorted(devices):
        place = {"device": device} | ({"now": now, "grace": GRACE_S} if wakes else {})
        row = tx.one(_NUMBER_AND_WAKE if wakes else _NUMBER, place)
        if row is not None:
            numbers[device] = row[0]
            tx.execute(_APPEND, {"device": device, "seq": row[0], "id": id})
    return numbers


def after(tx: Tx, device_id: str, seq: int, limit: int, now: float) -> list[Kept]:
    return [Kept(*row) for row in tx.all(_AFTER, {"device": device_id, "after": seq, "limit": limit, "now": now})]


def id_at(tx: Tx, device_id: str, seq: int) -> str | None:
    row = tx.one(_ID_AT, {"device": device_id, "seq": seq})
    return None if row is None else row[0]


def ack(tx: Tx, device_id: str, epoch: str, seq: int) -> None:
    """Cumulative. Another epoch, or a number beyond the head, changes nothing. Takes back a push that is due."""
    tx.execute(_ACK, {"device": device_id, "epoch": epoch, "seq": seq, "grace": GRACE_S})


def mark_sent(tx: Tx, device_id: str, epoch: str, seq: int) -> None:
    """Written to a socket, which says nothing about arrival; for receipts."""
    tx.execute(_SENT, {"device": device_id, "epoch": epoch, "seq": seq})


def mark_void(tx: Tx, device_id: str, epoch: str, seq: int, reason: str) -> None:
    """The device was told that this number is void, before it had confirmed it; for receipts."""
    tx.execute(_VOIDED, {"device": device_id, "epoch": epoch, "seq": seq, "reason": reason})


def hush(tx: Tx, ids: Sequence[str]) -> None:
    """These wake nobody any more: what they were about is over, or said again by a newer one."""
    tx.execute(_HUSH, [{"id": id} for id in ids])


def raise_generation(tx: Tx, device_id: str, instance: str) -> int:
    """A newer link of this instance: the pumps of older ones stop when they read it."""
    row = tx.one(_RAISE, {"device": device_id, "instance": instance})
    assert row is not None
    return int(row[0])


def generation(tx: Tx, device_id: str, instance: str) -> int:
    row = tx.one(_GENERATION, {"device": device_id, "instance": instance})
    return 0 if row is None else int(row[0])
