"""Frames kept a second, on disk before the sender goes on: `keep` against bare SQLite doing no more than it must."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import orjson
from sqlalchemy import text

from app.db import Database, Tx, open_database
from app.delivery.hub import Hub
from app.delivery.keep import keep
from app.outbox.store import join_audience, open_mailbox
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, file_system
from deploy.bench.report import Row, at_least, compared

SECONDS = 2.0
MANY, AIM_MANY, AIM_ONE = 64, 6_000, 1_000
DEVICE = "bench"
PAYLOAD = {"turn_id": "t", "session_id": "s", "text": "x" * 500, "finish": "completed"}

_NUMBER = (
    "UPDATE mailboxes SET head = head + 1, wake_seq = head + 1, wake_stored_at = ?, wake_at = ? WHERE device_id = ? "
    "RETURNING head"
)
_STORE = (
    "INSERT INTO payloads (payload_id, channel, type, kind, body, wakes, created_at) "
    "VALUES (?, 'chat', 'turn.completed', 'turn', ?, 1, ?)"
)
_APPEND = "INSERT INTO outbox (device_id, seq, payload_id) VALUES (?, ?, ?)"


async def measure(lab: Lab) -> list[Row]:
    ours, bare = lab.scratch() / "talaria.db", lab.scratch() / "talaria.db"
    async with open_database(f"sqlite:///{bare}") as db:
        await db.write(_prepare)
    async with open_database(f"sqlite:///{ours}") as db:
        await db.write(_prepare)
        return [
            await _row(lab, db, bare, MANY, AIM_MANY),
            await _row(lab, db, bare, 1, AIM_ONE),
        ]


async def _row(lab: Lab, db: Database, bare: Path, senders: int, aim: float) -> Row:
    """Beside many senders stands bare SQLite that commits as many at once, and in the note one that commits each."""
    others: list[float] = []

    def metered(kept: Callable[[], Awaitable[int]]) -> Callable[[], Awaitable[float]]:
        async def run() -> float:
            with Meter([]) as meter:
                count = await kept()
            others.append(meter.usage.others)
            return count / meter.seconds

        return run

    sides = {"ours": metered(partial(_keep, db, senders)), "each": metered(partial(_bare, bare, 1))}
    if senders > 1:
        sides["together"] = metered(partial(_bare, bare, senders))
    runs = await lab.in_turn(**sides)
    note = f"synced to {file_system(bare)}"
    if senders > 1:
        note += f"; SQLite with a transaction each {sorted(runs['each'])[len(runs['each']) // 2]:,.0f}"
    return compared(
        f"frames kept, {senders} sender{'s' if senders > 1 else ''}", "1/s",
        runs["ours"], runs["together" if senders > 1 else "each"], "bare SQLite",
        aim=at_least(aim), others=max(others), note=note,
    )  # fmt: skip


def _prepare(tx: Tx) -> None:
    tx.execute(text("INSERT INTO devices (device_id, name, about, created_at) VALUES (:d, :d, '{}', 0)"), {"d": DEVICE})
    open_mailbox(tx, DEVICE)
    join_audience(tx, DEVICE)


async def _keep(db: Database, senders: int) -> int:
    """Each sender keeps the next when the last is on disk."""
    hub, until = Hub(), time.monotonic() + SECONDS

    async def one(sender: int) -> int:
        number = 0
        while time.monotonic() < until:
            number += 1
            id = f"{until}-{sender}-{number}"
            await db.write(
                lambda tx, id=id: keep(  # type: ignore[misc]
                    tx, hub.ring, [DEVICE], id=id, channel="chat", type="turn.completed", kind="turn",
                    payload=PAYLOAD, now=time.time(),
                )
            )  # fmt: skip
        return number

    return sum(await asyncio.gather(*map(one, range(senders))))


async def _bare(path: Path, together: int) -> int:
    """The same rows by three statements, `together` frames in each transaction."""
    number, until = 0, time.monotonic() + SECONDS
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA foreign_keys=ON")
        while time.monotonic() < until:
            db.execute("BEGIN IMMEDIATE")
            for _ in range(together):
                number += 1
                id, now = f"{until}-{number}", time.time()
                db.execute(_STORE, (id, orjson.dumps(PAYLOAD), now))
                seq = db.execute(_NUMBER, (now, now + 5, DEVICE)).fetchone()[0]
                db.execute(_APPEND, (DEVICE, seq, id))
            db.execute("COMMIT")
    return number
