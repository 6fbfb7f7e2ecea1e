"""Sessions and pairing on a real database, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import text

from app.clock import ManualClock
from app.db import Database, open_database
from app.pairing.service import Pairing
from app.sessions import store
from app.sessions.grants import Seconds
from app.sessions.guessing.attempts import Attempts
from app.sessions.keys import SessionKeys
from app.sessions.renewals import Renewals
from app.sessions.service import Principal, Sessions
from app.sessions.tickets import Tickets
from app.settings import SessionSettings
from app.wire.payloads import Auth

MONTH = 30 * 86400


@dataclass(slots=True)
class Rooms:
    db: Database
    clock: ManualClock
    keys: SessionKeys
    attempts: Attempts
    sessions: Sessions
    pairing: Pairing
    renewals: Renewals
    tickets: Tickets
    ended: list[tuple[str, str]] = field(default_factory=list)
    changed: list[tuple[str, Any]] = field(default_factory=list)
    floods: list[float] = field(default_factory=list)

    async def pair(self, device_id: str | None = None, **offer: Any) -> tuple[Principal, str]:
        minted = await self.pairing.mint(**offer)
        return await self.pairing.redeem(Auth(pairing_code=minted.code, device_id=device_id))

    async def issue(
        self, device_id: str = "phone", *, grants: Seconds | None = None, ttl: int | None = MONTH
    ) -> tuple[Principal, str]:
        now = self.clock.now()

        def work(tx: Any) -> tuple[Principal, str]:
            store.put_device(tx, device_id, name=device_id, about={}, now=now)
            return self.sessions.issue(tx, device_id, grants, ttl, now)

        return await self.db.write(work)

    async def audit(self) -> list[tuple[str, str, str, dict[str, Any]]]:
        """(actor, action, subject, detail), oldest first."""
        rows = await self.db.read(
            lambda tx: tx.all(text("SELECT actor, action, subject, detail FROM audit ORDER BY id"))
        )
        return [(row[0], row[1], row[2], orjson.loads(row[3])) for row in rows]

    async def count(self, table: str) -> int:
        row = await self.db.read(lambda tx: tx.one(text(f"SELECT count(*) FROM {table}")))
        assert row is not None
        return int(row[0])


@asynccontextmanager
async def open_rooms(
    data_dir: Path, clock: ManualClock | None = None, *, confirms: bool = False
) -> AsyncIterator[Rooms]:
    clock = clock or ManualClock()
    async with open_database(f"sqlite:///{data_dir}/talaria.db") as db:
        keys, attempts = SessionKeys.load(data_dir), Attempts(db, clock)
        ended: list[tuple[str, str]] = []
        changed: list[tuple[str, Any]] = []
        sessions = Sessions(
            db, clock, keys, attempts, SessionSettings(),
            on_revoked=lambda session_id, reason: ended.append((session_id, reason)),
            on_changed=lambda session_id, grants: changed.append((session_id, grants)),
        )  # fmt: skip
        floods: list[float] = []
        pairing = Pairing(
            db, clock, sessions, attempts, data_dir, confirms=confirms, on_flood=lambda: floods.append(clock.now())
        )  # fmt: skip
        renewals, tickets = Renewals(db, clock, sessions, keys, attempts), Tickets(db, clock, sessions, attempts)
        yield Rooms(db, clock, keys, attempts, sessions, pairing, renewals, tickets, ended, changed, floods)
