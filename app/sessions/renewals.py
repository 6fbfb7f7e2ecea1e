"""Refresh tokens: a session goes on, or begins again after its end, without its operator.

Each use gives a new one. The one before stays good until the client is seen to have what it was given, by the new
refresh token or by a session token of the new term, since an answer may be lost on its way. After that its use means
that somebody else has a copy: the session ends.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app.audit import store as audit
from app.clock import Clock
from app.db import Database, Tx
from app.errors import StorageFull
from app.sessions import changes, opaque, store, tokens
from app.sessions.address import Address
from app.sessions.errors import (
    NotYours,
    RefreshReused,
    SessionExpired,
    SessionRefused,
    SessionRevoked,
    SessionUnknown,
    TokenRejected,
)
from app.sessions.guessing.attempts import Attempts
from app.sessions.keys import SessionKeys
from app.sessions.service import Principal, Sessions
from app.sessions.store import REVIVED, SEEN, SENT, Session

log = logging.getLogger("talaria.sessions")

LASTS_S = 180 * 86400  # a phone that was away for longer is paired again


@dataclass(frozen=True, slots=True)
class Renewed:
    principal: Principal
    token: str
    refresh_token: str

    def said(self) -> dict[str, Any]:
        """As a device is told."""
        return {
            "session_token": self.token, "refresh_token": self.refresh_token,
            "expires_at": self.principal.expires_at, "grants": dict(self.principal.grants),
        }  # fmt: skip


class Renewals:
    def __init__(self, db: Database, clock: Clock, sessions: Sessions, keys: SessionKeys, attempts: Attempts) -> None:
        self._db, self._clock = db, clock
        self._sessions, self._keys, self._attempts = sessions, keys, attempts
        self._rotating = asyncio.Lock()

    async def first(self, principal: Principal) -> str:
        """The refresh token of a new session."""
        refresh = opaque.new(opaque.REFRESH)
        await self._db.write(lambda tx: self._give(tx, principal.session_id, refresh, 0, self._clock.now()))
        return refresh

    async def renew(
        self, refresh: str, address: Address | None, *, device_id: str | None = None, session_id: str | None = None
    ) -> Renewed:
        """`device_id` and `session_id`, where given, are whose it must be. `address` None: of an open link.

        Raises TokenRejected for what matches nothing, SessionRefused, NotYours, RateLimited.
        """
        if address is not None:
            await self._attempts.admit_token(address)
        made = await self._db.write(lambda tx: self._renew(tx, refresh, device_id, session_id))
        if isinstance(made, Renewed):
            if address is not None:
                await self._attempts.succeeded("token", address)
            return made
        if isinstance(made, TokenRejected) and address is not None:
            await self._attempts.failed("token", address)
        raise made

    def _renew(self, tx: Tx, refresh: str, device_id: str | None, session_id: str | None) -> Renewed | SessionRefused:
        """A refusal is returned, not raised: the end of a session must be committed."""
        now = self._clock.now()
        found = store.refresh(tx, opaque.digest(refresh))
        session = None if found is None else store.session(tx, found[0])
        if found is None or session is None:
            return TokenRejected(detail="unknown refresh token")
        if session_id is not None and session.session_id != session_id:
            raise NotYours("this refresh token belongs to another session")
        if device_id is not None and session.device_id != device_id:
            return SessionUnknown(detail="the refresh token of another device")
        if session.revoked_at is not None:
            return SessionRevoked()
        number = session.refresh_number
        if found[1] < number - 1 or (found[1] == number - 1 and session.refresh_state == SEEN):
            return self._reused(tx, session, now)
        if found[2] <= now or session.renewal is None:
            return SessionExpired()
        return self._go_on(tx, session, session.renewal, found[1] + 1, now)

    def _go_on(self, tx: Tx, session: Session, renewal: store.Renewal, number: int, now: float) -> Renewed:
        made = changes.renewed(session, renewal, now)
        is_over = session.is_over(now)
        again = number == session.refresh_number  # the answer was lost, so what it said still has to be heard
        state = REVIVED if is_over or (again and session.refresh_state == REVIVED) else SENT
        # The tokens of a session that was over stay dead: whoever kept one had no more to hope for.
        term, signing = session.term + is_over, self._keys.signing
        store.renew(
            tx, session.session_id, made.grants, made.ends, term=term, kid=signing.kid, number=number, state=state
        )
        refresh = opaque.new(opaque.REFRESH)
        self._give(tx, session.session_id, refresh, number, now)
        audit.record(
            tx, at=now, actor=session.prefix, action="session.renewed", subject=session.prefix,
            device_id=session.device_id, expires_at=made.ends,
        )  # fmt: skip
        after = store.session(tx, session.session_id)
        assert after is not None
        self._sessions.note_change(tx, after)
        token = tokens.sign(
            signing, session_id=session.session_id, device_id=session.device_id, now=now, term=term
        )  # fmt: skip
        return Renewed(self._sessions.judge(after), token, refresh)

    def _give(self, tx: Tx, session_id: str, refresh: str, number: int, now: float) -> None:
        store.add_refresh(tx, opaque.digest(refresh), session_id, number, now, now + LASTS_S)

    def _reused(self, tx: Tx, session: Session, now: float) -> RefreshReused:
        self._sessions.end(tx, session.session_id, "refresh_reused", now)
        audit.record(
            tx, at=now, actor=session.prefix, action="session.revoked", subject=session.prefix,
            device_id=session.device_id, reason="a refresh token was used again",
        )  # fmt: skip
        session_id = session.prefix
        tx.after_commit(lambda: log.warning("a refresh token was used again", extra={"session": session_id}))
        return RefreshReused()

    async def heard(self, principal: Principal, refresh: str) -> None:
        """A client that speaks with a good session token shows what it has: its newest one makes the others dead."""

        def is_newest(tx: Tx) -> bool:
            session, found = store.session(tx, principal.session_id), store.refresh(tx, opaque.digest(refresh))
            if session is None or found is None or session.refresh_state == SEEN:
                return False
            return (found[0], found[1]) == (session.session_id, session.refresh_number)

        def note(tx: Tx) -> None:
            if is_newest(tx):
                store.refresh_seen(tx, principal.session_id)

        if await self._db.read(is_newest):  # most often there is nothing to write
            with suppress(StorageFull):
                await self._db.write(note)

    async def rotate_keys(self, actor: str) -> tuple[str, list[str]]:
        """The kid of the new key, and of those that no live session needs any more, which are gone.

        Raises Misconfigured where the file cannot be written.
        """
        async with self._rotating:
            kids = await self._db.read(lambda tx: store.kids(tx, self._clock.now()))
            # A session from before kids were noted may have been signed by any of them.
            in_use = {kid for kid in kids if kid is not None} if None not in kids else set(self._keys.public)
            gone = await asyncio.to_thread(self._keys.rotate, in_use)
            kid, now = self._keys.signing.kid, self._clock.now()
            await self._db.write(
                lambda tx: audit.record(tx, at=now, actor=actor, action="keys.rotated", subject=kid, gone=gone)
            )
            return kid, gone
