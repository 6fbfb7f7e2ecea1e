"""Orientation: how many frames a second the database keeps, each in a work of its own, on disk before it answers."""

from __future__ import annotations

import asyncio
import time

from sqlalchemy import text

from app.db import Database, Tx, open_database
from app.delivery.keep import keep
from app.outbox.store import join_audience, open_mailbox
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, file_system
from deploy.bench.report import Row

SECONDS = 2.0
SENDERS = (64, 1)
DEVICE = "bench"
PAYLOAD = {"turn_id": "t", "session_id": "s", "text": "x" * 500, "finish": "completed"}


async def measure(lab: Lab) -> list[Row]:
    path = lab.scratch() / "talaria.db"
    rows = []
    async with open_database(f"sqlite:///{path}") as db:
        await db.write(_prepare)
        for senders in SENDERS:
            with Meter([]) as meter:
                kept = await _keep_for(db, senders)
            rows.append(
                Row(
                    f"frames kept, {senders} sender{'s' if senders > 1 else ''}", "1/s", kept / meter.seconds,
                    note=f"synced to {file_system(path)}", others=meter.usage.others,
                )
            )  # fmt: skip
    return rows


def _prepare(tx: Tx) -> None:
    tx.execute(text("INSERT INTO devices (device_id, name, about, created_at) VALUES (:d, :d, '{}', 0)"), {"d": DEVICE})
    open_mailbox(tx, DEVICE)
    join_audience(tx, DEVICE)


async def _keep_for(db: Database, senders: int) -> int:
    until = time.monotonic() + SECONDS
    kept = 0

    async def one(sender: int) -> None:
        nonlocal kept
        number = 0
        while time.monotonic() < until:
            number += 1
            id = f"{senders}-{sender}-{number}"
            await db.write(
                lambda tx, id=id: keep(  # type: ignore[misc]
                    tx, lambda _: None, [DEVICE], id=id, channel="chat", type="turn.completed", kind="turn",
                    payload=PAYLOAD, now=0.0,
                )
            )  # fmt: skip
            kept += 1

    await asyncio.gather(*map(one, range(senders)))
    return kept
