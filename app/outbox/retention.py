"""What is old, or too much, goes: a prefix of each mailbox, then the payloads that no mailbox has any more."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from app.db import Tx

STEP = 2_000  # rows taken in one transaction: a long one would hold up every writer
ANSWERED_S = 30 * 86400.0  # a closed approval or question can still say that it is closed
SETTLED_S = 86400.0  # a payload that no mailbox has still has receipts to show for a day; a once-key is good as long

# Old is what lies before the first that is not: times need not rise with the numbers, since clocks are set.
_CUTS = text(
    "SELECT m.device_id, m.floor, m.head - :count, COALESCE((SELECT o.seq - 1 FROM outbox o JOIN payloads p "
    "USING (payload_id) WHERE o.device_id = m.device_id AND p.created_at >= :before ORDER BY o.seq LIMIT 1), m.head) "
    "FROM mailboxes m WHERE m.head > m.floor"
)
_DROP = text("DELETE FROM outbox WHERE device_id = :device AND seq <= :cut")
_FLOOR = text("UPDATE mailboxes SET floor = :cut WHERE device_id = :device AND floor < :cut")
_ORPHANS = text(
    "DELETE FROM payloads WHERE payload_id IN (SELECT p.payload_id FROM payloads p LEFT JOIN outbox "
    "o USING (payload_id) "
    "WHERE o.payload_id IS NULL AND p.created_at < :before LIMIT :limit)"
)
_ONCE = text(
    "DELETE FROM once WHERE (principal, type, key) IN "
    "(SELECT principal, type, key FROM once WHERE created_at < :before LIMIT :limit)"
)
_ASKS = text(
    "DELETE FROM approvals WHERE approval_id IN "
    "(SELECT approval_id FROM approvals WHERE closed_at < :before LIMIT :limit)"
)


@dataclass(frozen=True, slots=True)
class Retention:
    max_age_s: float
    max_count: int  # frames of one mailbox


def cuts(tx: Tx, rules: Retention, now: float) -> dict[str, tuple[int, int]]:
    """Device → (floor, the number up to which everything goes). A read: it looks at every mailbox."""
    rows = tx.all(_CUTS, {"count": rules.max_count, "before": now - rules.max_age_s})
    wanted = {device: (floor, max(by_count, by_age)) for device, floor, by_count, by_age in rows}
    return {device: (floor, cut) for device, (floor, cut) in wanted.items() if cut > floor}


def drop(tx: Tx, device_id: str, cut: int) -> None:
    tx.execute(_DROP, {"device": device_id, "cut": cut})
    tx.execute(_FLOOR, {"device": device_id, "cut": cut})


def sweep(tx: Tx, now: float) -> bool:
    """Payloads without a mailbox, once-keys and closed asks past their time. True if there is more."""
    aged = ((_ORPHANS, SETTLED_S), (_ONCE, SETTLED_S), (_ASKS, ANSWERED_S))
    return any(tx.execute(old, {"before": now - age, "limit": STEP}).rowcount == STEP for old, age in aged)
