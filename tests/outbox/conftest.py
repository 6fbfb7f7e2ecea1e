from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.db import Database, open_database
from app.outbox import store
from tests.mailboxes import mailbox_row

SESSION = text("INSERT INTO sessions (session_id, device_id, grants, created_at) VALUES (:id, :id, '{}', 0)")
DEVICE = text("INSERT INTO devices (device_id, name, about, created_at) VALUES (:id, :id, '{}', 0)")


@dataclass
class Boxes:
    """Mailboxes on a real database, with a clock that the test moves."""

    db: Database
    now: float = 1000.0
    _made: int = 0

    async def add(self, *devices: str, audience: str = "all") -> None:
        def work(tx: Any) -> None:
            for device in devices:
                tx.execute(DEVICE, {"id": device})
                tx.execute(SESSION, {"id": device})
                store.open_mailbox(tx, device)
                if audience != "none":
                    store.join_audience(tx, device, audience)

        await self.db.write(work)

    async def put(self, *devices: str, count: int = 1, kind: str = "message", **options: Any) -> list[str]:
        self._made += count
        ids = [f"m{n}" for n in range(self._made - count + 1, self._made + 1)]
        given = {"wakes": True} | options

        def work(tx: Any) -> None:
            for id in ids:
                store.append(
                    tx, devices, id=id, channel="messages", type="message", kind=kind,
                    body=b'{"text":"%b"}' % id.encode(), now=self.now, **given,
                )  # fmt: skip

        await self.db.write(work)
        return ids

    async def ack(self, device: str, seq: int) -> None:
        box = await self.box(device)
        await self.db.write(lambda tx: store.ack(tx, device, box["epoch"], seq))

    async def box(self, device: str) -> dict[str, Any]:
        return await mailbox_row(self.db, device)

    async def rows(self, device: str, after: int = 0) -> list[tuple[int, str, str | None]]:
        kept = await self.db.read(lambda tx: store.after(tx, device, after, 1000, self.now))
        return [(frame.seq, frame.id, frame.void) for frame in kept]


@pytest.fixture
async def boxes(tmp_path: Path) -> AsyncIterator[Boxes]:
    async with open_database(f"sqlite:///{tmp_path}/t.db") as db:
        yield Boxes(db)
