"""Tickets: open one socket in the name of a session, once and soon. For pages that keep their token from sockets."""

from __future__ import annotations

from app.clock import Clock
from app.db import Database, Tx
from app.errors import RateLimited
from app.sessions import opaque, store
from app.sessions.address import Address
from app.sessions.errors import SessionExpired, SessionRefused, SessionUnknown, TicketElsewhere, TokenRejected
from app.sessions.guessing.attempts import Attempts
from app.sessions.service import Principal, Sessions

LASTS_S = 30.0
MAX_OPEN = 8  # of one session


class Tickets:
    def __init__(self, db: Database, clock: Clock, sessions: Sessions, attempts: Attempts) -> None:
        self._db, self._clock = db, clock
        self._sessions, self._attempts = sessions, attempts

    async def issue(self, principal: Principal, origin: str | None) -> tuple[str, float]:
        """The ticket and its end. `origin` of the page that asks, None where none does. Raises RateLimited."""
        ticket = opaque.new(opaque.TICKET)

        def work(tx: Tx) -> float:
            now = self._clock.now()
            store.purge_tickets(tx, now, now + LASTS_S)
            if store.count_tickets(tx, principal.session_id) >= MAX_OPEN:
                raise RateLimited("use the tickets that you have", retry_after=int(LASTS_S))
            store.add_ticket(tx, opaque.digest(ticket), principal.session_id, origin, now + LASTS_S)
            return now + LASTS_S

        return ticket, await self._db.write(work)

    async def take(self, ticket: str, origin: str | None, address: Address) -> Principal:
        """Whose it is; it is used up, whatever comes of it.

        Raises TokenRejected for what matches nothing, TicketElsewhere, SessionRefused, RateLimited.
        """
        await self._attempts.admit_token(address)
        found = await self._db.write(lambda tx: self._take(tx, ticket, origin))
        if isinstance(found, Principal):
            return found
        if isinstance(found, TokenRejected):
            await self._attempts.failed("token", address)
        raise found

    def _take(self, tx: Tx, ticket: str, origin: str | None) -> Principal | SessionRefused:
        """A refusal is returned, not raised: the use must be committed."""
        taken = store.take_ticket(tx, opaque.digest(ticket))
        if taken is None:
            return TokenRejected(detail="unknown ticket")
        session_id, bound, ends = taken
        if not 0 < ends - self._clock.now() <= LASTS_S:
            return SessionExpired("this ticket has expired: ask for another")
        if origin != bound:
            return TicketElsewhere()
        session = store.session(tx, session_id)
        if session is None:
            return SessionUnknown()
        try:
            return self._sessions.judge(session)
        except SessionRefused as exc:
            return exc
