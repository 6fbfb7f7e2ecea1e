"""Which mailboxes are overdue, who is to push for them, and what came of it.

A push is due when an acknowledgement is missing, not when a socket looks closed. A mailbox is claimed with a lease, so
that one push goes out however many look; whoever holds it says what came of it, or the lease runs out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from app.db import Tx
from app.outbox.store import GRACE_S

FARTHEST_S = 2 * 86400.0  # nothing is put off for longer: quiet hours and Retry-After end within a day

# One that somebody holds is due again when the lease runs out, not at once. Times further ahead than they can be set
# are from a clock that ran ahead and was set back: they have come.
_NEXT = text(
    "SELECT MIN(MAX(CASE WHEN wake_at > :now + :farthest THEN 0 ELSE wake_at END, "
    "CASE WHEN lease_until <= :now + :lease THEN lease_until ELSE 0 END)) FROM mailboxes WHERE wake_at IS NOT NULL"
)
_CLAIM = text(
    "UPDATE mailboxes SET lease_until = :now + :lease WHERE device_id IN ("
    "SELECT device_id FROM mailboxes WHERE (wake_at <= :now OR wake_at > :now + :farthest) "
    "AND (lease_until IS NULL OR lease_until <= :now OR lease_until > :now + :lease) "
    "ORDER BY wake_at LIMIT :limit) RETURNING device_id, wake_seq, acked, woken, tries, foreground_until"
)
_UNSEEN = text(
    # What can be answered is worth a sound as long as it can.
    "SELECT o.seq, p.payload_id, p.kind, p.created_at, CASE WHEN p.kind IN ('approval', 'question') "
    "THEN json_extract(CAST(p.body AS TEXT), '$.expires_at') ELSE p.expires_at END, "
    "CASE WHEN p.kind = 'turn' THEN json_extract(CAST(p.body AS TEXT), '$.duration_s') END "
    "FROM outbox o JOIN payloads p USING (payload_id) WHERE o.device_id = :device AND o.seq > :after AND p.wakes <> 0 "
    "AND o.void IS NULL AND (p.expires_at IS NULL OR p.expires_at > :now) ORDER BY o.seq DESC LIMIT :limit"
)
_DONE = text(
    "UPDATE mailboxes SET woken = CASE WHEN :pushed <> 0 AND woken < :seq THEN :seq ELSE woken END, tries = 0, "
    "lease_until = NULL, wake_at = CASE WHEN wake_seq > :seq AND wake_seq > acked THEN wake_stored_at + :grace END "
    "WHERE device_id = :device"
)
_LATER = text(
    "UPDATE mailboxes SET lease_until = NULL, tries = tries + :tried, wake_at = CASE WHEN wake_at IS NULL THEN NULL "
    "WHEN wake_seq > :seq THEN MIN(:at, wake_stored_at + :grace) ELSE :at END WHERE device_id = :device"
)
_REARM = text(
    "UPDATE mailboxes SET wake_at = :at WHERE device_id = :device AND wake_at IS NULL AND wake_seq "
    "> acked AND wake_seq > woken"
)
_RETRY_NOW = text(
    "UPDATE mailboxes SET wake_at = :now WHERE wake_at > :now AND tries > 0 "
    "AND (:device IS NULL OR device_id = :device)"
)
_FOREGROUND = text("UPDATE mailboxes SET foreground_until = :until WHERE device_id = :device")
_NO_LONGER_DELAYED = text(
    "UPDATE mailboxes SET wake_at = MIN(wake_at, MAX(:now, wake_stored_at + :grace)) "
    "WHERE device_id = :device AND wake_at IS NOT NULL AND tries = 0"
)


@dataclass(frozen=True, slots=True)
class Overdue:
    device_id: str
    wake_seq: int
    acked: int
    woken: int
    tries: int  # pushes that failed since the last that did not
    foreground_until: float | None


@dataclass(frozen=True, slots=True)
class Unseen:
    """`duration_s` is how long a turn took, where it says so."""

    seq: int
    id: str
    kind: str
    created_at: float
    expires_at: float | None
    duration_s: float | None


def next_due(tx: Tx, now: float, lease_s: float) -> float | None:
    row = tx.one(_NEXT, {"now": now, "lease": lease_s, "farthest": FARTHEST_S})
    return None if row is None else row[0]


def claim(tx: Tx, now: float, lease_s: float, limit: int) -> list[Overdue]:
    claimed = tx.all(_CLAIM, {"now": now, "lease": lease_s, "farthest": FARTHEST_S, "limit": limit})
    return [Overdue(*row) for row in claimed]


def unseen(tx: Tx, overdue: Overdue, now: float, limit: int) -> Sequence[Unseen]:
    """The waking frames that are neither confirmed nor pushed about, newest first."""
    since = max(overdue.acked, overdue.woken)
    found = tx.all(_UNSEEN, {"device": overdue.device_id, "after": since, "now": now, "limit": limit})
    return [Unseen(*row) for row in found]


def done(tx: Tx, device_id: str, seq: int, *, pushed: bool) -> None:
    """A push about everything up to `seq` went out, or none was worth it. What was stored since is due in its turn."""
    tx.execute(_DONE, {"device": device_id, "seq": seq, "pushed": int(pushed), "grace": GRACE_S})


def later(tx: Tx, device_id: str, seq: int, at: float, *, tried: bool) -> None:
    """Look again at `at`, unless an acknowledgement has settled it meanwhile. What was stored since, above `seq`, is
    due in its turn.
    """
    tx.execute(_LATER, {"device": device_id, "seq": seq, "at": at, "tried": int(tried), "grace": GRACE_S})


def rearm(tx: Tx, device_id: str, at: float) -> None:
    """The device can be reached again: what it was never told of is due."""
    tx.execute(_REARM, {"device": device_id, "at": at})


def set_foreground(tx: Tx, device_id: str, until: float | None, now: float) -> None:
    """Its owner is looking at this very device: a wake waits until then. None: no longer, and what waited is due."""
    tx.execute(_FOREGROUND, {"device": device_id, "until": until})
    if until is None:
        tx.execute(_NO_LONGER_DELAYED, {"device": device_id, "now": now, "grace": GRACE_S})


def retry_now(tx: Tx, device_id: str | None, now: float) -> None:
    """What failed before is due at once: the device can be reached again. None: all, since the relay starts."""
    tx.execute(_RETRY_NOW, {"now": now, "device": device_id})
