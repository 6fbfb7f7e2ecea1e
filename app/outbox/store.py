"""What must arrive, one numbered mailbox per device.

Numbers run 1, 2, 3 … without gaps inside an epoch and are given in the transaction that stores the frame, so whoever
reads `seq > cursor` can never skip one. A payload is stored once and numbered for each device that gets it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from app.db import Tx

_OPEN = text(
    "INSERT INTO mailboxes (device_id, epoch, head, acked, audience) VALUES (:device, :epoch, 0, 0, 'none') "
    "ON CONFLICT (device_id) DO NOTHING"
)
_AUDIENCE = text("UPDATE mailboxes SET audience = 'all' WHERE device_id = :device AND audience <> 'all'")
_STATE = text("SELECT epoch, head, acked, audience FROM mailboxes WHERE device_id = :device")
_LISTENERS = text("SELECT device_id FROM mailboxes WHERE audience = 'all' ORDER BY device_id")
_STORE = text(
    "INSERT INTO payloads (payload_id, channel, type, kind, body, created_at) "
    "VALUES (:id, :channel, :type, :kind, :body, :now)"
)
_NUMBER = text("UPDATE mailboxes SET head = head + 1 WHERE device_id = :device RETURNING head")
_APPEND = text("INSERT INTO outbox (device_id, seq, payload_id) VALUES (:device, :seq, :id)")
_AFTER = text(
    "SELECT o.seq, p.payload_id, p.channel, p.type, p.body FROM outbox o JOIN payloads p USING (payload_id) "
    "WHERE o.device_id = :device AND o.seq > :after ORDER BY o.seq LIMIT :limit"
)
_ID_AT = text("SELECT payload_id FROM outbox WHERE device_id = :device AND seq = :seq")
_ACK = text(
    "UPDATE mailboxes SET acked = :seq WHERE device_id = :device AND epoch = :epoch AND acked < :seq AND head >= :seq"
)


@dataclass(frozen=True, slots=True)
class Mailbox:
    epoch: str
    head: int  # the last number given
    acked: int  # the last number the device has confirmed
    audience: str  # none, messages or all

    @property
    def listens(self) -> bool:
        return self.audience == "all"


@dataclass(frozen=True, slots=True)
class Kept:
    """A frame that must arrive; `body` is the payload as JSON."""

    seq: int
    id: str
    channel: str
    type: str
    body: bytes


def open_mailbox(tx: Tx, device_id: str) -> None:
    tx.execute(_OPEN, {"device": device_id, "epoch": secrets.token_hex(8)})


def join_audience(tx: Tx, device_id: str) -> None:
    """From now on this device gets every kept kind: its client acknowledges."""
    tx.execute(_AUDIENCE, {"device": device_id})


def mailbox(tx: Tx, device_id: str) -> Mailbox | None:
    row = tx.one(_STATE, {"device": device_id})
    return None if row is None else Mailbox(*row)


def listeners(tx: Tx) -> Sequence[str]:
    return [row[0] for row in tx.all(_LISTENERS)]


def append(
    tx: Tx, devices: Sequence[str], *, id: str, channel: str, type: str, kind: str, body: bytes, now: float
) -> dict[str, int]:
    """Store one payload and number it for each device. Returns device → seq; devices without a mailbox get none."""
    numbers: dict[str, int] = {}
    tx.execute(_STORE, {"id": id, "channel": channel, "type": type, "kind": kind, "body": body, "now": now})
    for device in devices:
        row = tx.one(_NUMBER, {"device": device})
        if row is not None:
            numbers[device] = row[0]
            tx.execute(_APPEND, {"device": device, "seq": row[0], "id": id})
    return numbers


def after(tx: Tx, device_id: str, seq: int, limit: int) -> list[Kept]:
    return [Kept(*row) for row in tx.all(_AFTER, {"device": device_id, "after": seq, "limit": limit})]


def id_at(tx: Tx, device_id: str, seq: int) -> str | None:
    row = tx.one(_ID_AT, {"device": device_id, "seq": seq})
    return None if row is None else row[0]


def ack(tx: Tx, device_id: str, epoch: str, seq: int) -> None:
    """Cumulative. Another epoch, or a number beyond the head, changes nothing."""
    tx.execute(_ACK, {"device": device_id, "epoch": epoch, "seq": seq})
