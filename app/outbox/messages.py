"""One payload over all its mailboxes: its receipts, and taking it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from app.db import Tx
from app.outbox.store import PAIRED

_PAYLOAD = text(
    "SELECT kind, COALESCE(whole, body), sender, created_at, expires_at FROM payloads WHERE payload_id = :id"
)
_RECEIPTS = text(
    "SELECT o.device_id, o.seq, CASE "
    "WHEN o.void IS NOT NULL THEN 'void' WHEN o.seq <= m.acked THEN 'acked' WHEN p.expires_at <= :now THEN 'void' "
    f"WHEN NOT {PAIRED} THEN 'void' "
    "WHEN o.seq <= m.woken AND p.wakes <> 0 THEN 'woken' WHEN o.seq <= m.sent THEN 'sent' ELSE 'kept' END, "
    "COALESCE(o.void, CASE WHEN o.seq <= m.acked THEN NULL WHEN p.expires_at <= :now THEN 'expired' "
    f"WHEN NOT {PAIRED} THEN 'revoked' END) "
    "FROM outbox o JOIN mailboxes m USING (device_id) JOIN payloads p USING (payload_id) "
    "WHERE o.payload_id = :id ORDER BY o.device_id"
)
_VOID = text(
    "UPDATE outbox SET void = :reason WHERE payload_id = :id AND void IS NULL AND seq > "
    "(SELECT acked FROM mailboxes m WHERE m.device_id = outbox.device_id) RETURNING device_id"
)
_WAITING = text(
    "SELECT p.payload_id, p.body, p.created_at FROM payloads p WHERE p.payload_id IN ("
    "SELECT o.payload_id FROM mailboxes m JOIN outbox o ON o.device_id = m.device_id AND o.seq > m.acked "
    f"WHERE o.void IS NULL AND {PAIRED}) "
    "AND p.kind IN ('message', 'cron') AND (p.expires_at IS NULL OR p.expires_at > :now) "
    "ORDER BY p.created_at, p.rowid LIMIT :limit"
)


@dataclass(frozen=True, slots=True)
class Stored:
    kind: str
    body: bytes
    sender: str | None
    created_at: float
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """`state`: kept, sent (written to a socket), woken (a push went out), acked, or void with its reason."""

    device_id: str
    seq: int
    state: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Waiting:
    id: str
    body: bytes
    created_at: float


def payload(tx: Tx, id: str) -> Stored | None:
    row = tx.one(_PAYLOAD, {"id": id})
    return None if row is None else Stored(*row)


def receipts(tx: Tx, id: str, now: float) -> list[Receipt]:
    return [Receipt(*row) for row in tx.all(_RECEIPTS, {"id": id, "now": now})]


def void(tx: Tx, id: str, reason: str) -> Sequence[str]:
    """Take it back where it was not confirmed yet. Returns the devices it was taken back from."""
    return [row[0] for row in tx.all(_VOID, {"id": id, "reason": reason})]


def waiting(tx: Tx, now: float, limit: int) -> list[Waiting]:
    """Messages that some device has not confirmed, oldest first."""
    return [Waiting(*row) for row in tx.all(_WAITING, {"now": now, "limit": limit})]
