"""What a restored database may not go on with, in one transaction: SQL on the copy that is about to be put in place.

The backup is older than the world: what it was about to do has been done since, or given up. Each room gives an end to
what it finds cut off when the relay starts; this only makes it look so.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from app.db.files import copy, migrate_file, opened
from app.errors import Misconfigured

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
_LIVE = (
    "SELECT s.session_id, d.name FROM sessions s JOIN devices d USING (device_id) "
    "WHERE s.revoked_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > ?) ORDER BY s.created_at"
)
# Who may speak, and how it goes on being so: what was cut, ended, renewed or rotated since stays as it is now.
_STATE = (
    "SELECT session_id, grants, expires_at, revoked_at, revoked_reason, api_hash, kid, renewal, term, refresh_number, "
    "refresh_state FROM sessions"
)
_CARRY = (
    "UPDATE sessions SET grants = ?2, expires_at = ?3, revoked_at = ?4, revoked_reason = ?5, api_hash = ?6, kid = ?7, "
    "renewal = ?8, term = ?9, refresh_number = ?10, refresh_state = ?11 WHERE session_id = ?1"
)
_REFRESH = "SELECT token_hash, session_id, number, created_at, expires_at FROM refresh_tokens"
_FORGET_REFRESH = "DELETE FROM refresh_tokens WHERE session_id = ?"
_CARRY_REFRESH = (
    "INSERT INTO refresh_tokens (token_hash, session_id, number, created_at, expires_at) "
    "SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM sessions WHERE session_id = ?2)"
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
    sessions: Sequence[tuple[Any, ...]]  # as _STATE reads them
    refresh: Sequence[tuple[Any, ...]]  # as _REFRESH does


def before(path: Path, scratch: Path, now: float) -> Before | None:
    """None: there is no database, or none that can be read. It is read from a copy at `scratch` with our schema.

    Raises sqlite3.Error where there is no room for that.
    """
    if not path.is_file():
        return None
    try:
        copy(path, scratch)
        with suppress(Misconfigured):  # a newer one has what is read here too
            migrate_file(scratch)
        with opened(scratch) as db:
            live = frozenset(row[0] for row in db.execute(_LIVE, (now,)))
            sessions, refresh = db.execute(_STATE).fetchall(), db.execute(_REFRESH).fetchall()
            return Before(relay_id(db) or "", live, sessions, refresh)
    except sqlite3.Error as exc:
        if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise  # what was revoked is there: to go on without it would bring it back
        return None
    finally:
        scratch.unlink(missing_ok=True)


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
        if known is not None:
            db.executemany(_CARRY, known.sessions)
            db.executemany(_FORGET_REFRESH, [(session[0],) for session in known.sessions])
            db.executemany(_CARRY_REFRESH, known.refresh)
        living = db.execute(_LIVE, (now,)).fetchall()
        revived = [Session(row[0][:8], row[1]) for row in living if known is None or row[0] not in known.live]
        detail = {"made_at": made_at, "revived": [one.prefix for one in revived]}
        db.execute(_AUDIT, (now, orjson.dumps(detail).decode()))
        db.execute("COMMIT")
        return revived
