"""What happens once per key: the answer is stored with the effect and given again to a copy.

A key is good for 24 hours (outbox/retention.py takes it out after), per principal and type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import orjson
from sqlalchemy import text

from app.db import Tx
from app.errors import IdReused, OutcomeUncertain
from app.once.keys import Claim

_FIND = text("SELECT payload_hash, answer FROM once WHERE principal = :principal AND type = :type AND key = :key")
_INSERT = text(
    "INSERT INTO once (principal, type, key, payload_hash, answer, created_at) "
    "VALUES (:principal, :type, :key, :hash, :answer, :now)"
)
_FILL = text("UPDATE once SET answer = :answer WHERE principal = :principal AND type = :type AND key = :key")
_FORGET = text("DELETE FROM once WHERE principal = :principal AND type = :type AND key = :key AND answer IS NULL")


def settled(tx: Tx, claim: Claim, now: float, effect: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """`effect`'s answer, or that of the first request with this key. Part of the work that does it.

    Raises IdReused, OutcomeUncertain and what `effect` raises; then nothing is stored.
    """
    if claim.key is None:
        return effect()
    before = find(tx, claim.principal, claim.type, claim.key, claim.payload)
    if before is not None:
        return before
    answer = effect()
    record(tx, claim.principal, claim.type, claim.key, claim.payload, answer, now)
    return answer


def find(tx: Tx, principal: str, type: str, key: str, payload: Any) -> dict[str, Any] | None:
    """The answer of an earlier copy, or None if this is the first.

    Raises IdReused; OutcomeUncertain for one that is pending: whoever is at work on it would be known (outward.py).
    """
    row = tx.one(_FIND, {"principal": principal, "type": type, "key": key})
    if row is None:
        return None
    if row[0] != fingerprint(payload):
        raise IdReused()
    if row[1] is None:
        raise OutcomeUncertain()
    answer: dict[str, Any] = orjson.loads(row[1])
    return answer


def record(tx: Tx, principal: str, type: str, key: str, payload: Any, answer: dict[str, Any], now: float) -> None:
    """In the transaction of the effect."""
    values = {"principal": principal, "type": type, "key": key, "hash": fingerprint(payload), "now": now}
    tx.execute(_INSERT, values | {"answer": _dumps(answer)})


# an effect outside the database: the claim is stored before it, the answer after


def begin(tx: Tx, claim: Claim, now: float) -> None:
    values = {"principal": claim.principal, "type": claim.type, "key": claim.key, "hash": fingerprint(claim.payload)}
    tx.execute(_INSERT, values | {"answer": None, "now": now})


def fill(tx: Tx, claim: Claim, answer: dict[str, Any]) -> None:
    values = {"principal": claim.principal, "type": claim.type, "key": claim.key}
    tx.execute(_FILL, values | {"answer": _dumps(answer)})


def forget(tx: Tx, claim: Claim) -> None:
    """It did not happen: the next copy is the first."""
    tx.execute(_FORGET, {"principal": claim.principal, "type": claim.type, "key": claim.key})


def fingerprint(payload: Any) -> str:
    return hashlib.sha256(orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _dumps(answer: dict[str, Any]) -> str:
    return orjson.dumps(answer).decode()
