"""When sessions and devices were last heard of."""

from __future__ import annotations

from contextlib import suppress

from app.clock import Clock
from app.db import Database
from app.errors import RelayError
from app.sessions import store
from app.sessions.store import Session

EVERY_S = 60.0  # it is written at most this often: it is for people


class LastSeen:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._unwritten: dict[str, tuple[str, float]] = {}  # session → device, when

    def note(self, session: Session) -> None:
        now = self._clock.now()
        if session.last_seen_at is None or abs(now - session.last_seen_at) >= EVERY_S:
            self._unwritten[session.session_id] = (session.device_id, now)

    async def write(self) -> None:
        """All since the last time, in one work. A full disk stops nobody."""
        seen, self._unwritten = self._unwritten, {}
        if seen:
            with suppress(RelayError):
                await self._db.write(lambda tx: store.seen(tx, seen))
