"""SQL of offers. An offer is taken by one UPDATE, so of several redeemers one wins."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import text

from app.db import Tx
from app.sessions.grants import Seconds

_ADD = text(
    "INSERT INTO offers (code_hash, offer_id, name, grants, ttl_seconds, created_at, expires_at, transport_hint) "
    "VALUES (:hash, :id, :name, :grants, :ttl, :now, :expires_at, :hint) "
    # Registering a code again makes a new offer of it.
    "ON CONFLICT (code_hash) DO UPDATE SET offer_id = excluded.offer_id, name = excluded.name, "
    "grants = excluded.grants, ttl_seconds = excluded.ttl_seconds, created_at = excluded.created_at, "
    "expires_at = excluded.expires_at, transport_hint = excluded.transport_hint, consumed_at = NULL, device_id = NULL"
)
_TAKE = text(
    "UPDATE offers SET consumed_at = :now, device_id = :device "
    "WHERE code_hash = :hash AND consumed_at IS NULL AND expires_at > :now RETURNING "
    "code_hash, offer_id, name, grants, ttl_seconds, expires_at, consumed_at, device_id, transport_hint"
)
_GET = text(
    "SELECT code_hash, offer_id, name, grants, ttl_seconds, expires_at, consumed_at, device_id, transport_hint "
    "FROM offers WHERE offer_id = :id"
)
_PURGE = text("DELETE FROM offers WHERE expires_at <= :before")


@dataclass(frozen=True, slots=True)
class Stored:
    """`grants` None: the defaults. `ttl` None: never ends."""

    offer_id: str
    name: str | None
    grants: Seconds | None
    ttl: int | None
    expires_at: float
    consumed_at: float | None
    device_id: str | None
    hint: str | None


def add(tx: Tx, code_hash: str, offer: Stored, now: float) -> None:
    values: dict[str, Any] = {
        "hash": code_hash, "id": offer.offer_id, "name": offer.name, "ttl": offer.ttl, "now": now,
        "grants": None if offer.grants is None else orjson.dumps(offer.grants).decode(),
        "expires_at": offer.expires_at, "hint": offer.hint,
    }  # fmt: skip
    tx.execute(_ADD, values)


def take(tx: Tx, code_hash: str, device_id: str, now: float) -> Stored | None:
    """The offer, now used up; None if there is no such offer, it is used, or its time is over."""
    row = tx.one(_TAKE, {"hash": code_hash, "device": device_id, "now": now})
    if row is None or not hmac.compare_digest(row[0], code_hash):
        return None
    return _stored(row)


def get(tx: Tx, offer_id: str) -> Stored | None:
    row = tx.one(_GET, {"id": offer_id})
    return None if row is None else _stored(row)


def purge(tx: Tx, before: float) -> None:
    tx.execute(_PURGE, {"before": before})


def _stored(row: Any) -> Stored:
    return Stored(row[1], row[2], None if row[3] is None else orjson.loads(row[3]), *row[4:9])
