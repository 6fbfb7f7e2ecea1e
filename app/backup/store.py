"""What a restored database may not go on with, in one transaction: SQL on the copy that is about to be put in place.

The backup is older than the world: what it was about to do has been done since, or given up. Each room gives an end to
what it finds cut off when the relay starts; this only makes it look so.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from app.db.files import opened

_FORGET = (
    "DELETE FROM offers",
    "DELETE FROM tickets",
    "DELETE FROM blocks",
    "DELETE FROM attempts",
    "DELETE FROM inbound",  # the gateway has had most of it: nothing is sent twice by itself
    "UPDATE approvals SET state = 'answering' WHERE state <> 'closed'",  # ends as uncertain
    "UPDATE turns SET state = 'submitting', lease = NULL WHERE state <> 'ended'",  # likewise
    "UPDATE mailboxes SET wake_at = NULL, wake_seq = 0, wake_stored_at = NULL, lease_until = NULL, tries = 0",
)
_REVOKED = "SELECT session_id, revoked_at, revoked_reason FROM sessions WHERE revoked_at IS NOT NULL"
_LIVE = (
    "SELECT s.session_id, d.name FROM sessions s JOIN devices d USING (device_id) "
    "WHERE s.revoked_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > ?) ORDER BY s.created_at"
)
_AUDIT = "INSERT INTO audit (at, actor, action, subject, detail) VALUES (?, 'operator', 'relay.restored', '', ?)"


@dataclass(frozen=True, slots=True)
class Session:
    prefix: str
    device: str


@dataclass(frozen=True, slots=True)
class Before:
    """What the database in place knows, and the backup may not. `live` holds the sessions that may speak now."""

    relay_id: str
    live: frozenset[str]
    revoked: Mapping[str, tuple[float, str | None]]  # session → when and why


def before(path: Path, now: float) -> Before | None:
    """None: there is no database, or none that can be read."""
    if not path.is_file():
        return None
    try:
        with opened(path) as db:
            rows = db.execute(
                "SELECT session_id, revoked_at, revoked_reason FROM sessions WHERE revoked_at IS NOT NULL"
            )
            revoked = {row[0]: (row[1], row[2]) for row in rows}
            return Before(relay_id(db) or "", frozenset(row[0] for row in db.execute(_LIVE, (now,))), revoked)
    except sqlite3.Error:
        return None


def relay_id(db: sqlite3.Connection) -> str | None:
    row = db.execute("SELECT value FROM meta WHERE key = 'relay_id'").fetchone()
    return None if row is None else bytes(row[0]).decode()


def settle(path: Path, known: Before | None, made_at: float, now: float) -> list[Session]:
    """Returns the sessions that the backup revives: alive in it, and not alive in the database in place."""
    with opened(path) as db:
        db.execute("BEGIN IMMEDIATE")
        for statement in _FORGET:
            db.execute(statement)
        for (device_id,) in db.execute("SELECT device_id FROM mailboxes").fetchall():
            db.execute("UPDATE mailboxes SET epoch = ? WHERE device_id = ?", (secrets.token_hex(8), device_id))
        for session_id, (at, reason) in ({} if known is None else known.revoked).items():
            db.execute(
                "UPDATE sessions SET revoked_at = ?, revoked_reason = ? WHERE session_id = ? AND revoked_at IS NULL",
                (at, reason, session_id),
            )
        living = db.execute(_LIVE, (now,)).fetchall()
        revived = [Session(row[0][:8], row[1]) for row in living if known is None or row[0] not in known.live]
        detail = {"made_at": made_at, "revived": [one.prefix for one in revived]}
        db.execute(_AUDIT, (now, orjson.dumps(detail).decode()))
        db.execute("COMMIT")
        return revived
