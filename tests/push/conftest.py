"""A dispatcher on a real database, with a clock that the test moves and an ntfy server that takes what is pushed."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.clock import ManualClock
from app.db import Database, Tx, open_database
from app.guard import guarded_client
from app.outbox import store as outbox
from app.outbox import wakes
from app.push import store
from app.push.dispatcher import Dispatcher
from app.push.notice import Content
from app.push.ntfy import Ntfy
from app.push.rules import Preferences
from app.tasks import Supervisor
from tests.contracts.services import NtfyService
from tests.mailboxes import mailbox_row
from tests.servers import serving

DEVICE = text("INSERT INTO devices (device_id, name, about, created_at) VALUES (:id, :id, '{}', 0)")
SESSION = text(
    "INSERT INTO sessions (session_id, device_id, grants, created_at) VALUES (:id, :id, json_object('chat', NULL), 0)"
)
REVOKE = text("UPDATE sessions SET revoked_at = :now WHERE device_id = :id")
_ids = itertools.count(1)


@dataclass
class Desk:
    db: Database
    clock: ManualClock
    service: NtfyService
    provider: Ntfy
    dispatcher: Dispatcher
    made: dict[str, str] = field(default_factory=dict)  # device → target

    async def phone(self, device: str, *, target: bool = True) -> None:
        """A paired device with a mailbox, and a topic."""

        def work(tx: Tx) -> None:
            tx.execute(DEVICE, {"id": device})
            tx.execute(SESSION, {"id": device})
            outbox.open_mailbox(tx, device)
            outbox.join_audience(tx, device)

        await self.db.write(work)
        if target:
            await self.register(device)

    async def register(self, device: str, topic: str | None = None) -> None:
        topic, now = topic or f"topic-of-{device}", self.clock.now()

        def work(tx: Tx) -> None:
            made, is_new = store.register(tx, f"t{next(_ids)}", device, "ntfy", topic, {}, now)
            self.made[device] = made
            if is_new:
                wakes.rearm(tx, device, now)

        await self.db.write(work)

    async def keep(self, *devices: str, kind: str = "message", body: Any = None, **options: Any) -> str:
        id, now = f"m{next(_ids)}", self.clock.now()
        encoded = json.dumps(body or {"text": "secret text", "title": "secret title"}).encode()
        given = {"wakes": True} | options
        await self.db.write(
            lambda tx: outbox.append(
                tx, devices, id=id, channel="messages", type="message", kind=kind, body=encoded, now=now, **given
            )
        )
        return id

    async def ack(self, device: str, seq: int) -> None:
        epoch = (await self.box(device))["epoch"]
        await self.db.write(lambda tx: outbox.ack(tx, device, epoch, seq))

    async def after(self, seconds: float) -> list[tuple[str, str]]:
        """Let time pass and push what is due: (device, what was said) of the pushes that went out."""
        self.clock.advance(seconds)
        before = len(self.service.taken)
        await self.dispatcher.once()
        return [(t["topic"].removeprefix("topic-of-"), t["message"]) for t in self.service.taken[before:]]

    async def box(self, device: str) -> dict[str, Any]:
        return await mailbox_row(self.db, device)

    async def due_in(self, device: str) -> float | None:
        at = (await self.box(device))["wake_at"]
        return None if at is None else round(at - self.clock.now(), 3)

    async def want(self, device: str, **wishes: Any) -> None:
        await self.db.write(lambda tx: store.set_preferences(tx, device, Preferences.model_validate(wishes)))

    async def outcomes(self, device: str) -> list[dict[str, Any]]:
        return await self.db.read(lambda tx: store.outcomes(tx, device, 1000))

    async def targets(self, device: str) -> list[store.Status]:
        return list(await self.db.read(lambda tx: store.statuses(tx, device)))


@asynccontextmanager
async def open_desk(home: Path, content: Content = "none") -> AsyncIterator[Desk]:
    service, clock = NtfyService(), ManualClock()
    async with (
        serving(service) as port,
        guarded_client(["127.0.0.1"], timeout_s=15.0) as client,
        open_database(f"sqlite:///{home}/desk.db") as db,
        Supervisor() as tasks,
    ):
        provider = Ntfy(client, f"http://127.0.0.1:{port}", service.token, None)
        dispatcher = Dispatcher(db, clock, tasks, {"ntfy": provider}, "relay-1", content, jitter=lambda: 0.5)
        yield Desk(db, clock, service, provider, dispatcher)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path) as desk:
        yield desk
