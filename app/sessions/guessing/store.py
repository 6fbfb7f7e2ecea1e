"""SQL of attempts and blocks."""

from __future__ import annotations

from sqlalchemy import text

from app.db import Tx

_ADD_ATTEMPT = text("INSERT INTO attempts (kind, address, at) VALUES (:kind, :address, :now)")
_COUNT = text("SELECT count(*) FROM attempts WHERE kind = :kind AND address = :address AND at > :since")
_FORGET_OLD_ATTEMPTS = text("DELETE FROM attempts WHERE at <= :before OR at > :now")
_FORGET_OLD_OF_ONE = text("DELETE FROM attempts WHERE at <= :before AND kind != 'codes'")
_FORGET_OLD_BLOCKS = text("DELETE FROM blocks WHERE until <= :now")
_FORGET = text("DELETE FROM attempts WHERE kind = :kind AND address = :address")
_COUNTED = text("SELECT DISTINCT kind, address FROM attempts")
_BLOCK = text(
    "INSERT INTO blocks (kind, address, until) VALUES (:kind, :address, :until) "
    "ON CONFLICT (kind, address) DO UPDATE SET until = excluded.until"
)
_UNTIL = text("SELECT kind, until FROM blocks WHERE address = :address AND until > :now")
_BLOCKS = text("SELECT kind, address, until FROM blocks")
_LIFT_ATTEMPTS = text("DELETE FROM attempts WHERE kind = :kind")
_LIFT_BLOCKS = text("DELETE FROM blocks WHERE kind = :kind")


def count(tx: Tx, kind: str, address: str, *, now: float, window: float, keep: float, all_for: float) -> int:
    """Add one; the number in the window. What is older than `keep` seconds, or not yet, is forgotten; those of all
    addresses together (kind `codes`) after `all_for`.
    """
    tx.execute(_FORGET_OLD_ATTEMPTS, {"before": now - all_for, "now": now})
    tx.execute(_FORGET_OLD_OF_ONE, {"before": now - keep})
    tx.execute(_ADD_ATTEMPT, {"kind": kind, "address": address, "now": now})
    row = tx.one(_COUNT, {"kind": kind, "address": address, "since": now - window})
    return row[0] if row is not None else 0


def block(tx: Tx, kind: str, address: str, until: float, now: float) -> None:
    tx.execute(_FORGET_OLD_BLOCKS, {"now": now})
    tx.execute(_BLOCK, {"kind": kind, "address": address, "until": until})
    forget(tx, kind, address)


def blocks_of(tx: Tx, address: str, now: float) -> dict[str, float]:
    """Kind → until."""
    return {row[0]: row[1] for row in tx.all(_UNTIL, {"address": address, "now": now})}


def forget(tx: Tx, kind: str, address: str) -> None:
    tx.execute(_FORGET, {"kind": kind, "address": address})


def lift(tx: Tx, kind: str) -> None:
    tx.execute(_LIFT_ATTEMPTS, {"kind": kind})
    tx.execute(_LIFT_BLOCKS, {"kind": kind})


def everything(tx: Tx) -> tuple[set[tuple[str, str]], dict[tuple[str, str], float]]:
    counted = {(row[0], row[1]) for row in tx.all(_COUNTED)}
    return counted, {(row[0], row[1]): row[2] for row in tx.all(_BLOCKS)}
