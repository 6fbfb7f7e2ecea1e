"""`POST /messages` in bursts: what scripts and agents send a sleeping phone, on disk before it is answered."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import orjson

from deploy.bench import processes
from deploy.bench.calls import Caller
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile
from deploy.bench.phone import dial, pair
from deploy.bench.processes import Broken, Server
from deploy.bench.report import Row, at_least, at_most

CALLERS = 64
WARM_SECONDS = 0.5
SECONDS = 3.0
ROOMY = "TALARIA_MAILBOX_MAX_COUNT=1000000\n"  # the phone sleeps through all runs


@dataclass(frozen=True, slots=True)
class Run:
    kept: int
    per_second: float
    taken_ms: Sequence[float]
    server_us: float  # processor time a message takes at the relay: noise hardly touches it
    others: float


async def measure(lab: Lab) -> list[Row]:
    scratch = lab.scratch()
    (scratch / ".env").write_text(ROOMY)
    async with processes.relay(scratch) as relay:
        token = (await pair(relay, 1))[0]
        (await dial(relay, token)).hang_up()  # from here on everything is kept for it
        runs = await lab.in_turn(keyed=lambda: _run(relay, keyed=True), bare=lambda: _run(relay, keyed=False))
        head = (await dial(relay, token)).auth["head"]
    answered = sum(run.kept for side in runs.values() for run in side)
    if head != answered:
        raise Broken(f"{answered} messages were answered, {head} are kept")
    return [
        *_rows("with Idempotency-Key", runs["keyed"]),
        *_rows("without a key", runs["bare"]),
    ]


def _rows(how: str, runs: Sequence[Run]) -> list[Row]:
    rates = [run.per_second for run in runs]
    p50, p99 = ([percentile(run.taken_ms, share) for run in runs] for share in (0.5, 0.99))
    others, server_us = max(run.others for run in runs), statistics.median(run.server_us for run in runs)
    return [
        Row(
            f"POST /messages, {CALLERS} connections, {how}", "1/s", statistics.median(rates), at_least(2500),
            note=f"all kept; {server_us:.0f} µs of processor each", others=others, runs={"ours": rates},
        ),
        Row(
            f"POST /messages, p99, {how}", "ms", statistics.median(p99), at_most(60),
            note=f"p50 {statistics.median(p50):.1f} ms", others=others, runs={"ours": p99},
        ),
    ]  # fmt: skip


async def _run(relay: Server, *, keyed: bool) -> Run:
    """Closed loop: each connection sends the next as soon as it is answered."""
    taken: list[float] = []
    stop = False
    kept = 0

    async def one(caller: Caller) -> None:
        nonlocal kept
        while not stop:
            headers = f"Idempotency-Key: {secrets.token_hex(8)}\r\n" if keyed else ""
            began = time.perf_counter()
            await caller.post("/messages", body(kept), headers)
            taken.append((time.perf_counter() - began) * 1e3)
            kept += 1

    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(Caller(relay)) for _ in range(CALLERS)]
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(one(caller))
            await asyncio.sleep(WARM_SECONDS)
            taken.clear()
            with Meter([relay.pid]) as meter:
                await asyncio.sleep(SECONDS)
                measured = list(taken)
            stop = True
    per_second = len(measured) / meter.seconds
    return Run(kept, per_second, measured, meter.usage.servers * 1e4 / per_second, meter.usage.others)


def body(number: int) -> bytes:
    return orjson.dumps({"text": f"message {number} {'x' * 80}", "title": "Hermes", "chat_id": "bench"})
