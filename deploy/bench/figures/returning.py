"""A phone that comes back: to a thousand messages that waited, and to none after a long history."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from app.db import Tx, open_database
from app.outbox import store
from deploy.bench import processes
from deploy.bench.calls import Caller
from deploy.bench.figures.posts import body
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile
from deploy.bench.phone import SUPPORTS, dial, envelope, pair
from deploy.bench.processes import Broken, Server
from deploy.bench.report import Row, at_most, compared
from deploy.bench.websocket import connect

WAITING = 1000
RETURNS = 20  # in a run: one is over before the machine's clock of processor time has ticked twice
CALLERS = 16
FEW, MANY = 10, 100_000
STEP = 2_000  # frames of the history made in one transaction
RECONNECTS = 200
ANSWER_SECONDS = 15
HEAD = 100  # bytes of a frame that its channel and type are in
ROOMY = f"TALARIA_MAILBOX_MAX_COUNT={2 * MANY}\n"


async def measure_backlog(lab: Lab) -> list[Row]:
    """The phone confirms nothing, so each run gets the same messages."""
    others = []
    async with lab.relay(1) as (relay, [token]):
        (await dial(relay, token)).hang_up()
        await _send(relay, WAITING)

        async def run() -> float:
            with Meter([relay.pid]) as meter:
                seconds = [await _receive(relay, token) for _ in range(RETURNS)]
            others.append(meter.usage.others)
            return statistics.median(seconds) * 1e3

        runs = (await lab.in_turn(ours=run))["ours"]
    return [
        Row(
            f"{WAITING:,} kept messages to a returning phone", "ms", statistics.median(runs), at_most(150),
            note="from its auth frame to the last message; whole and in order", others=max(others),
            runs={"ours": runs},
        )
    ]  # fmt: skip


async def _send(relay: Server, count: int) -> None:
    left = iter(range(count))

    async def one() -> None:
        async with Caller(relay) as caller:
            for number in left:
                await caller.post("/messages", body(number))

    await asyncio.gather(*(one() for _ in range(CALLERS)))


async def _receive(relay: Server, token: str) -> float:
    """Seconds."""
    socket = await connect(relay.host, relay.port)
    frames: list[bytes] = []
    last: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def on_text(frame: bytes) -> None:
        frames.append(frame)
        if len(frames) == WAITING + 1:  # auth.ok is the first
            last.set_result(time.perf_counter())

    socket.on_text = on_text
    auth = envelope("system", "auth", {"session_token": token, "supports": SUPPORTS, "instance": "bench"})
    began = time.perf_counter()
    socket.send(auth)
    async with asyncio.timeout(ANSWER_SECONDS):
        seconds = await last - began
    socket.transport.abort()
    numbers = [orjson.loads(frame).get("seq") for frame in frames[1 : WAITING + 1]]
    if numbers != list(range(1, WAITING + 1)):
        raise Broken(f"a returning phone got {numbers[:5]}… instead of 1 to {WAITING}")
    return seconds


# history


@dataclass(frozen=True, slots=True)
class Run:
    p50_ms: float
    p99_ms: float
    others: float


async def measure_history(lab: Lab) -> list[Row]:
    async with _with_history(lab, FEW) as few, _with_history(lab, MANY) as many:
        runs = await lab.in_turn(few=partial(_reconnect, *few), many=partial(_reconnect, *many))
    p99 = {side: statistics.median(run.p99_ms for run in found) for side, found in runs.items()}
    return [
        compared(
            f"connect, authenticate and synced, {MANY:,} acknowledged frames", "ms",
            [run.p50_ms for run in runs["many"]], [run.p50_ms for run in runs["few"]], f"with {FEW}",
            aim=at_most(1.3, of="ratio"), others=max(run.others for side in runs.values() for run in side),
            note=f"p50 of {RECONNECTS}, one after the other; p99 {p99['many']:.1f} ms, {p99['few']:.1f} with {FEW}",
        )
    ]  # fmt: skip


@asynccontextmanager
async def _with_history(lab: Lab, frames: int) -> AsyncIterator[tuple[Server, str, dict[str, Any]]]:
    """A relay whose only device has confirmed so many frames, its token, and where it stands."""
    scratch = lab.scratch()
    (scratch / ".env").write_text(ROOMY)
    async with processes.relay(scratch) as relay:
        [token] = await pair(relay, 1)
        device = (await dial(relay, token)).auth["device_id"]
    await _live_through(scratch / "data" / "talaria.db", device, frames)
    async with processes.relay(scratch) as relay:
        phone = await dial(relay, token)
        phone.hang_up()
        if phone.auth["head"] != frames:
            raise Broken(f"the history has {phone.auth['head']} frames instead of {frames}")
        yield relay, token, {"epoch": phone.auth["epoch"], "after": frames}


async def _live_through(path: Path, device: str, frames: int) -> None:
    def some(tx: Tx, first: int, end: int) -> None:
        for number in range(first, end):
            store.append(
                tx, [device], id=f"history-{number}", channel="messages", type="message", kind="message",
                body=body(number), now=time.time(), wakes=True,
            )  # fmt: skip

    def confirm(tx: Tx) -> None:
        box = store.mailbox(tx, device)
        assert box is not None
        store.ack(tx, device, box.epoch, box.head)

    async with open_database(f"sqlite:///{path}") as db:
        for first in range(0, frames, STEP):
            await db.write(partial(some, first=first, end=min(first + STEP, frames)))
        await db.write(confirm)


async def _reconnect(relay: Server, token: str, resume: dict[str, Any]) -> Run:
    taken: Sequence[float] = []
    with Meter([relay.pid]) as meter:
        taken = [await _once(relay, token, resume) for _ in range(RECONNECTS)]
    return Run(percentile(taken, 0.5), percentile(taken, 0.99), meter.usage.others)


async def _once(relay: Server, token: str, resume: dict[str, Any]) -> float:
    """Milliseconds until it has everything."""
    synced: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def on_text(frame: bytes) -> None:
        if b'"synced"' in frame[:HEAD] and not synced.done():
            synced.set_result(time.perf_counter())

    began = time.perf_counter()
    phone = await dial(relay, token, on_text, resume=resume)
    async with asyncio.timeout(ANSWER_SECONDS):
        ended = await synced
    phone.hang_up()
    return (ended - began) * 1e3
