"""Who may speak: a session of a paired device, until it expires or is revoked.

The row decides, the token only names it. Verdicts are cached for a few seconds, and dropped when a session changes.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from app.audit import store as audit
from app.clock import Clock
from app.db import Database, Tx
from app.errors import RelayError, StorageFull
from app.sessions import changes, opaque, store, tokens
from app.sessions import grants as rules
from app.sessions.address import Address
from app.sessions.changes import Change, Outcome
from app.sessions.errors import (
    ApiTokenMisplaced,
    NotYours,
    SessionExpired,
    SessionRefused,
    SessionRevoked,
    SessionUnknown,
    TokenRejected,
)
from app.sessions.guessing.attempts import Attempts
from app.sessions.keys import SessionKeys
from app.sessions.seen import LastSeen
from app.sessions.store import Device, Session
from app.sessions.verdicts import Verdicts
from app.settings import SessionSettings


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a frame or a request comes from. Grants: name → Unix seconds, or None for never."""

    session_id: str
    device_id: str
    grants: Mapping[str, float | None]
    expires_at: float | None
    transport_hint: str | None = None

    @property
    def prefix(self) -> str:
        return self.session_id[:8]


class Sessions:
    """`on_revoked(session_id, reason)` and `on_changed(session_id, grants)` run on the loop right after the commit."""

    def __init__(
        self, db: Database, clock: Clock, keys: SessionKeys, attempts: Attempts, settings: SessionSettings, *,
        on_revoked: Callable[[str, str], None] = lambda session_id, reason: None,
        on_changed: Callable[[str, rules.Expiries], None] = lambda session_id, grants: None,
    ) -> None:  # fmt: skip
        self._db = db
        self._clock = clock
        self._keys = keys
        self._attempts = attempts
        self.default_ttl = settings.session_ttl
        self._on_revoked = on_revoked
        self._on_changed = on_changed
        self._seen = LastSeen(db, clock)
        self._verdicts: Verdicts[Principal] = Verdicts(clock)
        # Counts ends and changes. What was read before one may be out of date: it is not cached, and a link that was
        # authenticated meanwhile is to be rechecked.
        self.changes = 0

    # tokens

    def issue(
        self, tx: Tx, device_id: str, grants_seconds: rules.Seconds | None, ttl: int | None, now: float, *,
        replace: bool = False, hint: str | None = None, api_hash: str | None = None,
    ) -> tuple[Principal, str]:  # fmt: skip
        """A session of an existing device, and its token. `replace` ends its other ones; `ttl` None never ends.

        `api_hash` is the digest of the token that opens the Hermes API in its name.
        """
        if replace:
            for old in store.sessions_of(tx, device_id):  # also one that is over, which would begin again
                self.end(tx, old.session_id, "replaced", now)
        ends = rules.expiry(ttl, now)
        granted = rules.expiries(grants_seconds, ends, now)
        session_id, signing = secrets.token_hex(16), self._keys.signing
        renewal = store.Renewal(ttl, dict(rules.DEFAULT if grants_seconds is None else grants_seconds))
        store.add_session(
            tx, session_id, device_id, grants=granted, expires_at=ends, hint=hint, now=now,
            api_hash=api_hash, kid=signing.kid, renewal=renewal,
        )  # fmt: skip
        token = tokens.sign(signing, session_id=session_id, device_id=device_id, now=now)
        return Principal(session_id, device_id, granted, ends, hint), token

    async def verify(self, token: str) -> Principal:
        """Raises TokenRejected for what matches nothing, ApiTokenMisplaced, else SessionUnknown, SessionExpired,
        SessionRevoked.
        """
        if token.startswith(opaque.API):
            await self.by_api_token(token)
            raise ApiTokenMisplaced()
        key = self._verdicts.key(token)
        cached = self._cached(key)
        if cached is not None:
            return cached
        named = tokens.read(self._keys, token)
        before = self.changes
        session = await self._db.read(lambda tx: store.session(tx, named.session_id))
        if session is None or session.device_id != named.device_id:
            raise SessionUnknown()
        principal = self.judge(session)
        if named.term != session.term:
            raise SessionExpired()
        if session.refresh_state == store.REVIVED:  # whoever speaks with it has got what came with it
            with suppress(StorageFull):
                await self._db.write(lambda tx: store.refresh_seen(tx, session.session_id))
        self._remember(key, session, principal, before)
        return principal

    async def by_api_token(self, token: str) -> Principal:
        """Whom a token of the Hermes API stands for, with `chat` and no other grant.

        Raises TokenRejected for what matches nothing, SessionUnknown for one whose code was not redeemed; else
        SessionExpired, SessionRevoked.
        """
        key = self._verdicts.key(token)
        cached = self._cached(key)
        if cached is not None:
            return cached
        if not token.startswith(opaque.API):
            raise TokenRejected(detail="no API token")
        before = self.changes
        session, is_offered = await self._db.read(lambda tx: store.session_by_api(tx, opaque.digest(token)))
        if session is None and is_offered:  # scanned, and used too early: no guess
            raise SessionUnknown("this token opens nothing before its pairing code is redeemed")
        if session is None:
            raise TokenRejected(detail="unknown API token")
        principal = self.judge(session)
        chat = {name: end for name, end in principal.grants.items() if name == "chat"}
        principal = replace(principal, grants=chat)
        self._remember(key, session, principal, before)
        return principal

    def _cached(self, key: bytes) -> Principal | None:
        cached = self._verdicts.get(key)
        if cached is not None:
            _check_end(cached.expires_at, self._clock.now())
        return cached

    def _remember(self, key: bytes, session: Session, principal: Principal, before: int) -> None:
        if before == self.changes:
            self._verdicts.put(key, session.session_id, principal)
        self._seen.note(session)

    async def verify_from(self, token: str, address: Address) -> Principal:
        """`verify`, within the limits on guessing from one address. Raises RateLimited too."""
        return await self._within_limits(self.verify, token, address)

    async def verify_for_api(self, token: str, address: Address) -> Principal:
        """For the routes of the Hermes API: a session token or an API token. Raises as `verify_from`."""
        verify = self.by_api_token if token.startswith(opaque.API) else self.verify
        return await self._within_limits(verify, token, address)

    async def _within_limits(
        self, verify: Callable[[str], Awaitable[Principal]], token: str, address: Address
    ) -> Principal:
        await self._attempts.admit_token(address)
        try:
            principal = await verify(token)
        except TokenRejected:
            await self._attempts.failed("token", address)
            raise
        await self._attempts.succeeded("token", address)
        return principal

    async def recheck(self, session_ids: Iterable[str]) -> dict[str, Principal | RelayError]:
        """What each of these sessions may now; one query. For sockets that stay open."""
        await self._seen.write()
        asked = list(dict.fromkeys(session_ids))
        rows = await self._db.read(lambda tx: store.sessions_by_id(tx, asked)) if asked else []
        found: dict[str, Principal | RelayError] = {session_id: SessionUnknown() for session_id in asked}
        for session in rows:
            try:
                found[session.session_id] = self.judge(session)
            except SessionRefused as exc:
                found[session.session_id] = exc
        return found

    # the owner's view

    async def list(self) -> Sequence[Session]:
        """Live sessions, the most recently seen first."""
        await self._seen.write()
        return await self._db.read(lambda tx: store.live_sessions(tx, self._clock.now()))

    async def devices(self) -> Sequence[tuple[Device, Sequence[Session]]]:
        """Every device with its live sessions, then those that are over and that it may begin again."""
        await self._seen.write()

        def work(tx: Tx) -> tuple[list[Device], list[Session]]:
            now = self._clock.now()
            return store.devices(tx), store.live_sessions(tx, now) + store.dormant_sessions(tx, now)

        devices, sessions = await self._db.read(work)
        return [(device, [s for s in sessions if s.device_id == device.device_id]) for device in devices]

    async def revoke(self, prefix: str, *, actor: str) -> str:
        """The id of the session that ended; of one that is over, so that nothing begins it again.

        Raises NotFound, SessionPrefixAmbiguous.
        """

        def work(tx: Tx) -> str:
            now = self._clock.now()
            session = changes.find(tx, prefix, now, or_over=True)
            self.end(tx, session.session_id, "revoked", now)
            audit.record(
                tx, at=now, actor=actor, action="session.revoked", subject=session.prefix, device_id=session.device_id
            )
            return session.session_id

        return await self._db.write(work)

    async def reduce(self, prefix: str, change: Change, *, by: Principal) -> Session:
        """A device lessens its own session. A grant above its ceiling stays: the phone's clock may lag.

        Raises NotFound, SessionPrefixAmbiguous, NotYours, GrantUnknown, MoreThanGranted.
        """

        def limit(session: Session, now: float) -> Outcome:
            if session.session_id != by.session_id:
                raise NotYours("cannot modify another session")
            return changes.reduced(session, change, now)

        return await self._alter(prefix, limit, name=None, actor=by.prefix)

    async def alter(self, prefix: str, change: Change, *, actor: str = "operator") -> Session:
        """The operator may name a device and give or extend any grant.

        Raises NotFound, SessionPrefixAmbiguous, GrantUnknown.
        """

        def set_(session: Session, now: float) -> Outcome:
            return changes.altered(session, change, now)

        return await self._alter(prefix, set_, name=change.name, actor=actor)

    async def _alter(
        self, prefix: str, decide: Callable[[Session, float], Outcome], *, name: str | None, actor: str
    ) -> Session:
        def work(tx: Tx) -> Session:
            now = self._clock.now()
            session = changes.find(tx, prefix, now)
            changed = changes.apply(tx, session, decide(session, now), name=name, actor=actor, now=now)
            self.note_change(tx, changed)
            return changed

        return await self._db.write(work)

    def end(self, tx: Tx, session_id: str, reason: str, now: float) -> None:
        store.revoke(tx, session_id, reason, now)
        tx.after_commit(lambda: self._ended(session_id, reason))

    def note_change(self, tx: Tx, session: Session) -> None:
        """What is remembered of this session is out of date once this work is committed."""
        tx.after_commit(lambda: self._changed(session))

    def judge(self, session: Session) -> Principal:
        """Raises SessionExpired, SessionRevoked."""
        if session.revoked_at is not None:
            raise SessionRevoked("this device was paired again" if session.revoked_reason == "replaced" else "")
        _check_end(session.expires_at, self._clock.now())
        return _principal(session)

    def _ended(self, session_id: str, reason: str) -> None:
        self.changes += 1
        self._verdicts.drop(session_id)
        self._on_revoked(session_id, reason)

    def _changed(self, session: Session) -> None:
        self.changes += 1
        self._verdicts.drop(session.session_id)
        self._on_changed(session.session_id, session.grants)


def _principal(session: Session) -> Principal:
    return Principal(session.session_id, session.device_id, session.grants, session.expires_at, session.transport_hint)


def _check_end(expires_at: float | None, now: float) -> None:
    if expires_at is not None and now >= expires_at:
        raise SessionExpired()
