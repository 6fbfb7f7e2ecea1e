"""What happens once per key: the answer is stored with the effect and given again to a copy."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
from sqlalchemy import text

from app.db import Tx
from app.errors import IdReused, StillPending

_FIND = text("SELECT payload_hash, answer FROM once WHERE principal = :principal AND type = :type AND key = :key")
_CLAIM = text(
    "INSERT INTO once (principal, type, key, payload_hash, answer, created_at) "
    "VALUES (:principal, :type, :key, :hash, :answer, :now)"
)


def find(tx: Tx, principal: str, type: str, key: str, payload: Any) -> dict[str, Any] | None:
    """The answer of an earlier copy, or None if this is the first. Raises IdReused, StillPending."""
    row = tx.one(_FIND, {"principal": principal, "type": type, "key": key})
    if row is None:
        return None
    if row[0] != _hash(payload):
        raise IdReused()
    if row[1] is None:
        raise StillPending()
    answer: dict[str, Any] = orjson.loads(row[1])
    return answer


def record(tx: Tx, principal: str, type: str, key: str, payload: Any, answer: dict[str, Any], now: float) -> None:
    """In the transaction of the effect."""
    values = {"principal": principal, "type": type, "key": key, "hash": _hash(payload), "now": now}
    tx.execute(_CLAIM, values | {"answer": orjson.dumps(answer).decode()})


def _hash(payload: Any) -> str:
    return hashlib.sha256(orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)).hexdigest()
