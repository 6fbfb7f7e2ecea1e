"""SQL of devices and sessions, and of what renews and opens them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import orjson
from sqlalchemy import bindparam, text

from app.db import Tx
from app.sessions.grants import Expiries, Seconds

SEEN, SENT, REVIVED = "seen", "sent", "revived"  # of the newest refresh token of a session

_PREFIX = re.compile(r"[0-9a-f]{1,32}")

_PUT_DEVICE = text(
    "INSERT INTO devices (device_id, name, about, created_at, last_seen_at) "
    "VALUES (:device, :name, :about, :now, :now) "
    "ON CONFLICT (device_id) DO UPDATE SET name = excluded.name, about = excluded.about, last_seen_at = :now"
)
_DEVICE_NAME = text("SELECT name FROM devices WHERE device_id = :device")
_RENAME = text("UPDATE devices SET name = :name WHERE device_id = :device")
_DEVICES = text("SELECT device_id, name, about, created_at, last_seen_at FROM devices ORDER BY created_at, device_id")
_ADD = text(
    "INSERT INTO sessions (session_id, device_id, grants, created_at, expires_at, last_seen_at, transport_hint, "
    "api_hash, kid, renewal) VALUES (:session, :device, :grants, :now, :expires_at, :now, :hint, :api, :kid, :renewal)"
)
_SELECT = (
    "SELECT s.session_id, s.device_id, s.grants, s.created_at, s.expires_at, s.last_seen_at, s.revoked_at, "
    "s.revoked_reason, s.transport_hint, d.name, d.about, s.renewal, s.term, s.refresh_number, s.refresh_state "
    "FROM sessions s JOIN devices d USING (device_id) "
)
_LIVE = "s.revoked_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > :now) "
_ONE = text(_SELECT + "WHERE s.session_id = :session")
_BY_API = text(_SELECT + "WHERE s.api_hash = :hash")
_IS_OFFERED = text("SELECT 1 FROM offers WHERE api_hash = :hash LIMIT 1")
_SOME = text(_SELECT + "WHERE s.session_id IN :sessions").bindparams(bindparam("sessions", expanding=True))
_HAS_REFRESH = "EXISTS (SELECT 1 FROM refresh_tokens r WHERE r.session_id = s.session_id AND r.expires_at > :now) "
_DORMANT = text(
    _SELECT + "WHERE s.revoked_at IS NULL AND s.expires_at <= :now AND s.renewal IS NOT NULL AND " + _HAS_REFRESH
    + "ORDER BY s.expires_at DESC, s.session_id"
)  # fmt: skip
_ALL_LIVE = text(_SELECT + "WHERE " + _LIVE + "ORDER BY s.last_seen_at DESC, s.session_id")
_LIKE = text(
    _SELECT + "WHERE s.session_id >= :prefix AND s.session_id < :after AND s.revoked_at IS NULL "
    "ORDER BY coalesce(s.expires_at <= :now, 0), s.session_id LIMIT 2"
)
_OF_DEVICE = text(_SELECT + "WHERE s.device_id = :device AND s.revoked_at IS NULL ORDER BY s.session_id")
_LIVE_OF_DEVICE = text(_SELECT + "WHERE s.device_id = :device AND " + _LIVE + "ORDER BY s.session_id")
_REVOKE = text(
    "UPDATE sessions SET revoked_at = :now, revoked_reason = :reason WHERE session_id = :session AND revoked_at IS NULL"
)
_CHANGE = text(
    "UPDATE sessions SET grants = :grants, expires_at = :expires_at, renewal = :renewal WHERE session_id = :session"
)
_REFRESH_SEEN = text("UPDATE sessions SET refresh_state = 'seen' WHERE session_id = :session")
_RENEW = text(
    # A live session keeps its tokens, and so the keys that signed them; NULL: any of them may have.
    "UPDATE sessions SET grants = :grants, expires_at = :expires_at, "
    "kid = CASE WHEN term < :term THEN :kid WHEN instr(kid, :kid) THEN kid ELSE kid || ' ' || :kid END, "
    "term = :term, refresh_number = :number, refresh_state = :state WHERE session_id = :session"
)
_ADD_REFRESH = text("INSERT INTO refresh_tokens VALUES (:hash, :session, :number, :now, :expires_at)")
_REFRESH = text("SELECT session_id, number, expires_at FROM refresh_tokens WHERE token_hash = :hash")
# Of one number as many as a client may have lost answers; of numbers, as many as one may find in an old backup.
_TRIM_REFRESH = text(
    "DELETE FROM refresh_tokens WHERE session_id = :session AND (number < :number - 50 OR token_hash IN ("
    "SELECT token_hash FROM refresh_tokens WHERE session_id = :session AND number = :number "
    "ORDER BY created_at DESC, rowid DESC LIMIT -1 OFFSET 8))"
)
_KIDS = text("SELECT DISTINCT kid FROM sessions WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)")
_ADD_TICKET = text("INSERT INTO tickets VALUES (:hash, :session, :origin, :expires_at)")
_TAKE_TICKET = text("DELETE FROM tickets WHERE token_hash = :hash RETURNING session_id, origin, expires_at")
_COUNT_TICKETS = text("SELECT count(*) FROM tickets WHERE session_id = :session")
_PURGE_TICKETS = text("DELETE FROM tickets WHERE expires_at <= :now OR expires_at > :latest")
_SEEN_SESSION = text("UPDATE sessions SET last_seen_at = :now WHERE session_id = :session")
_SEEN_DEVICE = text("UPDATE devices SET last_seen_at = :now WHERE device_id = :device")


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a renewal gives, in seconds from then; None never ends."""

    ttl: int | None
    grants: Seconds


@dataclass(frozen=True, slots=True)
class Session:
    """A row, with the name and the self-description of its device."""

    session_id: str
    device_id: str
    grants: Expiries
    created_at: float
    expires_at: float | None
    last_seen_at: float | None
    revoked_at: float | None
    revoked_reason: str | None
    transport_hint: str | None
    device_name: str
    about: Mapping[str, str]
    renewal: Renewal | None
    term: int
    refresh_number: int
    refresh_state: str  # seen, sent or revived

    def is_over(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    @property
    def prefix(self) -> str:
        """How people and clients name a session: tokens all begin alike."""
        return self.session_id[:8]


@dataclass(frozen=True, slots=True)
class Device:
    device_id: str
    name: str
    about: Mapping[str, str]
    created_at: float
    last_seen_at: float | None


def _session(row: Sequence[Any]) -> Session:
    values = list(row)
    values[2], values[10] = orjson.loads(row[2]), orjson.loads(row[10])
    values[11] = None if row[11] is None else Renewal(**orjson.loads(row[11]))
    return Session(*values)


def _renewal(renewal: Renewal | None) -> str | None:
    return None if renewal is None else orjson.dumps(renewal).decode()


def put_device(tx: Tx, device_id: str, *, name: str, about: Mapping[str, str], now: float) -> None:
    tx.execute(_PUT_DEVICE, {"device": device_id, "name": name, "about": orjson.dumps(about).decode(), "now": now})


def device_name(tx: Tx, device_id: str) -> str | None:
    row = tx.one(_DEVICE_NAME, {"device": device_id})
    return None if row is None else cast("str", row[0])


def rename_device(tx: Tx, device_id: str, name: str) -> None:
    tx.execute(_RENAME, {"device": device_id, "name": name})


def devices(tx: Tx) -> list[Device]:
    return [Device(row[0], row[1], orjson.loads(row[2]), row[3], row[4]) for row in tx.all(_DEVICES)]


def add_session(
    tx: Tx, session_id: str, device_id: str, *, grants: Expiries, expires_at: float | None, hint: str | None,
    now: float, api_hash: str | None = None, kid: str | None = None, renewal: Renewal | None = None,
) -> None:  # fmt: skip
    values = {
        "session": session_id, "device": device_id, "grants": orjson.dumps(grants).decode(), "expires_at": expires_at,
        "hint": hint, "now": now, "api": api_hash, "kid": kid, "renewal": _renewal(renewal),
    }  # fmt: skip
    tx.execute(_ADD, values)


def session(tx: Tx, session_id: str) -> Session | None:
    row = tx.one(_ONE, {"session": session_id})
    return None if row is None else _session(row)


def session_by_api(tx: Tx, api_hash: str) -> tuple[Session | None, bool]:
    """And whether an offer holds that token, redeemed or not."""
    row = tx.one(_BY_API, {"hash": api_hash})
    if row is not None:
        return _session(row), True
    return None, tx.one(_IS_OFFERED, {"hash": api_hash}) is not None


def sessions_by_id(tx: Tx, session_ids: Sequence[str]) -> list[Session]:
    return [_session(row) for row in tx.expanded(_SOME, {"sessions": session_ids})]


def live_sessions(tx: Tx, now: float) -> list[Session]:
    """Most recently seen first."""
    return [_session(row) for row in tx.all(_ALL_LIVE, {"now": now})]


def dormant_sessions(tx: Tx, now: float) -> list[Session]:
    """Those that have ended, and that a refresh token begins again. The last to end first."""
    return [_session(row) for row in tx.all(_DORMANT, {"now": now})]


def sessions_like(tx: Tx, prefix: str, now: float) -> list[Session]:
    """At most two that were not revoked, live ones first: one is a match, two are an ambiguity."""
    if not _PREFIX.fullmatch(prefix):
        return []
    return [_session(row) for row in tx.all(_LIKE, {"prefix": prefix, "after": prefix + "g", "now": now})]


def sessions_of(tx: Tx, device_id: str) -> list[Session]:
    """All that were not revoked: those that have ended can begin again."""
    return [_session(row) for row in tx.all(_OF_DEVICE, {"device": device_id})]


def live_sessions_of(tx: Tx, device_id: str, now: float) -> list[Session]:
    return [_session(row) for row in tx.all(_LIVE_OF_DEVICE, {"device": device_id, "now": now})]


def revoke(tx: Tx, session_id: str, reason: str, now: float) -> None:
    tx.execute(_REVOKE, {"session": session_id, "reason": reason, "now": now})


def change(tx: Tx, session_id: str, grants: Expiries, expires_at: float | None, renewal: Renewal | None) -> None:
    values = {"session": session_id, "grants": orjson.dumps(grants).decode(), "expires_at": expires_at}
    tx.execute(_CHANGE, values | {"renewal": _renewal(renewal)})


def refresh_seen(tx: Tx, session_id: str) -> None:
    tx.execute(_REFRESH_SEEN, {"session": session_id})


def renew(
    tx: Tx, session_id: str, grants: Expiries, expires_at: float | None, *, term: int, kid: str, number: int, state: str
) -> None:
    values = {"session": session_id, "grants": orjson.dumps(grants).decode(), "expires_at": expires_at}
    tx.execute(_RENEW, values | {"term": term, "kid": kid, "number": number, "state": state})


def add_refresh(tx: Tx, token_hash: str, session_id: str, number: int, now: float, expires_at: float) -> None:
    values = {"hash": token_hash, "session": session_id, "number": number, "now": now, "expires_at": expires_at}
    tx.execute(_ADD_REFRESH, values)
    tx.execute(_TRIM_REFRESH, {"session": session_id, "number": number})


def refresh(tx: Tx, token_hash: str) -> tuple[str, int, float] | None:
    """(session, number, end) of a refresh token."""
    row = tx.one(_REFRESH, {"hash": token_hash})
    return None if row is None else (row[0], row[1], row[2])


def kids(tx: Tx, now: float) -> set[str | None]:
    """The keys that signed tokens of live sessions; None among them: one that is not known."""
    return {kid for row in tx.all(_KIDS, {"now": now}) for kid in ([None] if row[0] is None else row[0].split())}


# tickets


def add_ticket(tx: Tx, token_hash: str, session_id: str, origin: str | None, expires_at: float) -> None:
    tx.execute(_ADD_TICKET, {"hash": token_hash, "session": session_id, "origin": origin, "expires_at": expires_at})


def take_ticket(tx: Tx, token_hash: str) -> tuple[str, str | None, float] | None:
    """(session, origin, end), gone now."""
    row = tx.one(_TAKE_TICKET, {"hash": token_hash})
    return None if row is None else (row[0], row[1], row[2])


def count_tickets(tx: Tx, session_id: str) -> int:
    row = tx.one(_COUNT_TICKETS, {"session": session_id})
    return row[0] if row is not None else 0


def purge_tickets(tx: Tx, now: float, latest: float) -> None:
    """Those that have ended, and those that a clock set back would keep for long."""
    tx.execute(_PURGE_TICKETS, {"now": now, "latest": latest})


# being seen


def seen(tx: Tx, seen: Mapping[str, tuple[str, float]]) -> None:
    """Session → device and when."""
    tx.execute(_SEEN_SESSION, [{"session": session_id, "now": at} for session_id, (_, at) in seen.items()])
    tx.execute(_SEEN_DEVICE, [{"device": device_id, "now": at} for device_id, at in seen.values()])
