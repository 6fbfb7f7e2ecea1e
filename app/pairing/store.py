"""SQL of offers. An offer is taken by one UPDATE, so of several redeemers one wins."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import text

from app.db import Tx
from app.sessions.grants import Seconds

_SELECT = (
    "SELECT code_hash, offer_id, name, grants, ttl_seconds, expires_at, consumed_at, device_id, transport_hint, "
    "api_hash, approval, claim, claimant, confirm, confirm_until, allowed FROM offers "
)
_ADD = text(
    "INSERT INTO offers (code_hash, offer_id, name, grants, ttl_seconds, created_at, expires_at, transport_hint, "
    "api_hash, approval) VALUES (:hash, :id, :name, :grants, :ttl, :now, :expires_at, :hint, :api, :approval) "
    # Registering a code again makes a new offer of it.
    "ON CONFLICT (code_hash) DO UPDATE SET offer_id = excluded.offer_id, name = excluded.name, "
    "grants = excluded.grants, ttl_seconds = excluded.ttl_seconds, created_at = excluded.created_at, "
    "expires_at = excluded.expires_at, transport_hint = excluded.transport_hint, api_hash = excluded.api_hash, "
    "approval = excluded.approval, consumed_at = NULL, device_id = NULL, claim = NULL, claimant = NULL, "
    "confirm = NULL, confirm_until = NULL, allowed = NULL"
)
_TAKE = text(
    "UPDATE offers SET consumed_at = :now, device_id = :device "
    "WHERE offer_id = :id AND consumed_at IS NULL AND expires_at > :now RETURNING offer_id"
)
_OF_CODE = text(_SELECT + "WHERE code_hash = :hash")
_GET = text(_SELECT + "WHERE offer_id = :id")
_CLAIM = text(
    "UPDATE offers SET claim = :claim, claimant = :claimant, confirm = :confirm, confirm_until = :until, "
    "expires_at = max(expires_at, :until) WHERE offer_id = :id"
)
_ALLOW = text("UPDATE offers SET allowed = 1 WHERE offer_id = :id")
# Used up, but by nobody.
_VOID = text("UPDATE offers SET consumed_at = :now WHERE offer_id = :id AND consumed_at IS NULL")
_VOID_OPEN = text(
    "UPDATE offers SET consumed_at = :now WHERE consumed_at IS NULL AND expires_at > :now RETURNING offer_id"
)
_PENDING = _SELECT + ("WHERE confirm IS NOT NULL AND consumed_at IS NULL AND allowed IS NULL AND confirm_until > :now ")
_ALL_PENDING = text(_PENDING + "ORDER BY confirm_until")
_BY_CONFIRM = text(_PENDING + "AND confirm = :confirm")
_PURGE = text("DELETE FROM offers WHERE expires_at <= :before")

BEFORE, REDEEM = "before", "redeem"  # when the operator has to say yes: to the offer, or to who redeems it


@dataclass(frozen=True, slots=True)
class Stored:
    """`grants` None: the defaults. `ttl` None: never ends."""

    offer_id: str
    name: str | None
    grants: Seconds | None
    ttl: int | None
    expires_at: float
    consumed_at: float | None = None
    device_id: str | None = None
    hint: str | None = None
    api_hash: str | None = None
    approval: str | None = None
    claim: str | None = None
    claimant: Mapping[str, str] | None = None
    confirm: str | None = None
    confirm_until: float | None = None
    allowed: int | None = None

    def is_open(self, now: float) -> bool:
        return self.consumed_at is None and self.expires_at > now


def add(tx: Tx, code_hash: str, offer: Stored, now: float) -> None:
    values: dict[str, Any] = {
        "hash": code_hash, "id": offer.offer_id, "name": offer.name, "ttl": offer.ttl, "now": now,
        "grants": None if offer.grants is None else orjson.dumps(offer.grants).decode(),
        "expires_at": offer.expires_at, "hint": offer.hint, "api": offer.api_hash, "approval": offer.approval,
    }  # fmt: skip
    tx.execute(_ADD, values)


def of_code(tx: Tx, code_hash: str) -> Stored | None:
    """Whatever became of it."""
    row = tx.one(_OF_CODE, {"hash": code_hash})
    if row is None or not hmac.compare_digest(row[0], code_hash):
        return None
    return _stored(row)


def take(tx: Tx, offer_id: str, device_id: str, now: float) -> bool:
    """Use it up. False: it is used, or its time is over."""
    return tx.one(_TAKE, {"id": offer_id, "device": device_id, "now": now}) is not None


def get(tx: Tx, offer_id: str) -> Stored | None:
    row = tx.one(_GET, {"id": offer_id})
    return None if row is None else _stored(row)


# confirmation


def claim(tx: Tx, offer_id: str, claim: str, claimant: Mapping[str, str], confirm: str, until: float) -> None:
    said = orjson.dumps(claimant).decode()
    tx.execute(_CLAIM, {"id": offer_id, "claim": claim, "claimant": said, "confirm": confirm, "until": until})


def allow(tx: Tx, offer_id: str) -> None:
    tx.execute(_ALLOW, {"id": offer_id})


def void(tx: Tx, offer_id: str, now: float) -> None:
    tx.execute(_VOID, {"id": offer_id, "now": now})


def void_open(tx: Tx, now: float) -> list[str]:
    """Their ids."""
    return [row[0] for row in tx.all(_VOID_OPEN, {"now": now})]


def pending(tx: Tx, now: float) -> list[Stored]:
    """Those that somebody redeemed and that wait for the operator; the first to end first."""
    return [_stored(row) for row in tx.all(_ALL_PENDING, {"now": now})]


def by_confirm(tx: Tx, confirm: str, now: float) -> Stored | None:
    row = tx.one(_BY_CONFIRM, {"confirm": confirm, "now": now})
    return None if row is None else _stored(row)


def purge(tx: Tx, before: float) -> None:
    tx.execute(_PURGE, {"before": before})


def _stored(row: Any) -> Stored:
    values = list(row[1:])
    values[2] = None if values[2] is None else orjson.loads(values[2])
    values[11] = None if values[11] is None else orjson.loads(values[11])
    return Stored(*values)
