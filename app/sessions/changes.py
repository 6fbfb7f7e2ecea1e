"""What a change of a session makes of it: its grants, its end, and what a later renewal gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.audit import store as audit
from app.db import Tx
from app.errors import NotFound
from app.sessions import grants as rules
from app.sessions import store
from app.sessions.errors import GrantUnknown, MoreThanGranted, SessionPrefixAmbiguous
from app.sessions.store import Renewal, Session

ENDING_S = 60  # a grant that is cut to this, or less, is taken back: a renewal must not bring it again
LAG_S = 3600.0  # phones write the ends of grants by their own clocks


@dataclass(frozen=True, slots=True)
class Change:
    """What to change; None stays as it is, but `ttl` where `ttl_given` says so."""

    ttl: int | None = None  # seconds from now, None = never
    grants: rules.Seconds | None = None
    name: str | None = None
    ttl_given: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    grants: Mapping[str, float | None]
    ends: float | None
    renewal: Renewal | None


def reduced(session: Session, change: Change, now: float) -> Outcome:
    """By the device itself. Raises GrantUnknown, MoreThanGranted."""
    ends, granted = session.expires_at, dict(session.grants)
    if change.ttl_given:
        ends = rules.expiry(change.ttl, now)
        if rules.earlier(ends, session.expires_at) != ends:
            raise MoreThanGranted("operator approval required to extend session")
    less: dict[str, int] = {}
    for name, seconds in (change.grants or {}).items():
        if name not in granted:
            raise GrantUnknown(f"unknown grant {name!r}")
        before, granted[name] = granted[name], rules.earlier(granted[name], rules.expiry(seconds, now))
        if seconds is not None and granted[name] != before:
            less[name] = seconds
    renewal = session.renewal
    if renewal is not None:
        kept = {name: _least(seconds, less.get(name)) for name, seconds in renewal.grants.items()}
        ttl = _least(renewal.ttl, change.ttl) if change.ttl_given else renewal.ttl
        renewal = Renewal(ttl, _without_ended(kept))
    return Outcome(granted, ends, renewal)


def altered(session: Session, change: Change, now: float) -> Outcome:
    """By the operator. Raises GrantUnknown."""
    asked = rules.check(change.grants or {})
    ends = rules.expiry(change.ttl, now) if change.ttl_given else session.expires_at
    granted = {**session.grants, **{name: rules.expiry(seconds, now) for name, seconds in asked.items()}}
    renewal = session.renewal
    if renewal is not None:
        ttl = change.ttl if change.ttl_given else renewal.ttl
        renewal = Renewal(ttl, _without_ended({**renewal.grants, **asked}))
    return Outcome(granted, ends, renewal)


def renewed(session: Session, renewal: Renewal, now: float) -> Outcome:
    """As long again, from now. A grant that ended while its session went on stays ended."""
    is_over = session.is_over(now)
    since = session.expires_at - LAG_S if is_over and session.expires_at is not None else now
    ends = rules.expiry(renewal.ttl, now) if is_over else _later(session.expires_at, rules.expiry(renewal.ttl, now))
    granted = dict(session.grants)
    for name, seconds in renewal.grants.items():
        before = granted.get(name, 0.0)
        if before is None or before > since:
            granted[name] = rules.expiry(seconds, now) if is_over else _later(before, rules.expiry(seconds, now))
    return Outcome(rules.clamp(granted, ends), ends, renewal)


def find(tx: Tx, prefix: str, now: float, *, or_over: bool = False) -> Session:
    """The live session that begins like this; `or_over`: else one that is over. Raises NotFound,
    SessionPrefixAmbiguous.
    """
    found = store.sessions_like(tx, prefix, now)
    live = [session for session in found if not session.is_over(now)]
    named = live or (found if or_over else [])
    if not named:
        raise NotFound(f"no session matches prefix '{prefix}'")
    if len(named) > 1:
        raise SessionPrefixAmbiguous(f"prefix '{prefix}' matches more than one session")
    return named[0]


def apply(tx: Tx, before: Session, made: Outcome, *, name: str | None, actor: str, now: float) -> Session:
    """The session as it is from now on, and, where it says so, its device under another name."""
    store.change(tx, before.session_id, rules.clamp(made.grants, made.ends), made.ends, made.renewal)
    if name is not None:
        store.rename_device(tx, before.device_id, name)
    after = store.session(tx, before.session_id)
    assert after is not None
    grants = {name: end for name, end in after.grants.items() if before.grants.get(name, 0) != end}
    if grants or before.expires_at != after.expires_at:
        audit.record(
            tx, at=now, actor=actor, action="session.changed", subject=after.prefix, device_id=after.device_id,
            grants=grants, expires_at=after.expires_at,
        )  # fmt: skip
    if before.device_name != after.device_name:
        audit.record(tx, at=now, actor=actor, action="device.renamed", subject=after.device_id, name=after.device_name)
    return after


def _without_ended(seconds: Mapping[str, int | None]) -> dict[str, int | None]:
    return {name: value for name, value in seconds.items() if value is None or value > ENDING_S}


def _least(a: int | None, b: int | None) -> int | None:
    given = [value for value in (a, b) if value is not None]
    return min(given) if given else None


def _later(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else max(a, b)
