"""All mailboxes together, for whoever measures."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from app.db import Tx
from app.outbox.store import PAIRED

_EVER = text("SELECT COALESCE(SUM(head), 0), COALESCE(SUM(acked), 0) FROM mailboxes")
_WAITING = text(
    "SELECT COALESCE(SUM(waits), 0), COALESCE(MAX(waits), 0), MIN(oldest) FROM ("
    "SELECT head - MAX(acked, floor) AS waits, (SELECT p.created_at FROM outbox o JOIN payloads p USING (payload_id) "
    "WHERE o.device_id = m.device_id AND o.seq > MAX(m.acked, m.floor) ORDER BY o.seq LIMIT 1) AS oldest "
    f"FROM mailboxes m WHERE audience <> 'none' AND {PAIRED})"
)


@dataclass(frozen=True, slots=True)
class Totals:
    """`kept` and `acked` are since the mailboxes were made. `oldest` is when the first that waits was kept."""

    kept: int
    acked: int
    waiting: int
    deepest: int  # the most that wait for one device
    oldest: float | None


def totals(tx: Tx) -> Totals:
    """What waits for devices that were revoked waits for nobody, and is left out."""
    return Totals(*(tx.one(_EVER) or (0, 0)), *(tx.one(_WAITING) or (0, 0, None)))
