"""What the owner answered to messages, until a tool on the host has fetched it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from app.db import Tx

_INSERT = text("INSERT INTO replies (device_id, body, created_at) VALUES (:device, :body, :now)")
_COUNT = text("SELECT count(*) FROM replies")
_WAITING = text("SELECT id, body FROM replies ORDER BY id LIMIT :limit")
_DELETE = text("DELETE FROM replies WHERE id = :id")
_PURGE = text("DELETE FROM replies WHERE created_at < :before")


@dataclass(frozen=True, slots=True)
class Reply:
    id: int
    body: bytes  # JSON


def insert(tx: Tx, device_id: str, body: bytes, now: float) -> None:
    tx.execute(_INSERT, {"device": device_id, "body": body, "now": now})


def count(tx: Tx) -> int:
    row = tx.one(_COUNT)
    return 0 if row is None else int(row[0])


def waiting(tx: Tx, limit: int) -> list[Reply]:
    """Oldest first."""
    return [Reply(*row) for row in tx.all(_WAITING, {"limit": limit})]


def delete(tx: Tx, ids: Sequence[int]) -> None:
    for id in ids:
        tx.execute(_DELETE, {"id": id})


def purge(tx: Tx, before: float) -> None:
    tx.execute(_PURGE, {"before": before})
