"""Commands to a phone and back: HTTP, the relay, the phone's socket, and the same way home."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson

from deploy.bench import processes
from deploy.bench.calls import Caller
from deploy.bench.figures.pairing import inhabited
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile
from deploy.bench.phone import ANSWER_SECONDS, Phone, dial, pair
from deploy.bench.processes import Broken, Server
from deploy.bench.report import Row, at_least

FEW, MANY = 10, 1_000  # stored sessions
AIMS = {1: 1_000.0, 32: 2_200.0}  # by callers
WARM_SECONDS = 0.5
SECONDS = 3.0
BODY = orjson.dumps({"x": 512, "y": 1024})
STATUS = {"device": {"name": "Pixel 9"}, "battery": 81, "screen_on": True, "ts": 1740000000000}


@dataclass(frozen=True, slots=True)
class Run:
    per_second: float
    taken_ms: Sequence[float]
    server_us: float  # processor time a command takes at the relay: noise hardly touches it
    others: float


class Answering:
    """A phone that does at once what it is asked."""

    def __init__(self) -> None:
        self.phone: Phone | None = None
        self.ready = asyncio.Event()

    def heard(self, text: bytes) -> None:
        frame = orjson.loads(text)
        if frame["type"] == "bridge.command" and self.phone is not None:
            said = {"request_id": frame["payload"]["request_id"], "status": 200, "result": {"ok": True}}
            self.phone.send("bridge", "bridge.response", said)
        elif frame["type"] == "pong":
            self.ready.set()


async def measure(lab: Lab) -> list[Row]:
    homes = {count: await inhabited(lab, count) for count in (FEW, MANY)}
    sides = {f"{callers} {stored}": (callers, stored) for stored in homes for callers in AIMS}
    runs = await lab.in_turn(
        **{name: partial(_run, lab, homes[stored], callers) for name, (callers, stored) in sides.items()}
    )
    return [_row(*sides[name], found) for name, found in runs.items()]


def _row(callers: int, stored: int, runs: Sequence[Run]) -> Row:
    rates = [run.per_second for run in runs]
    p50, p99, server_us = (
        statistics.median(values)
        for values in (
            [percentile(run.taken_ms, 0.5) for run in runs], [percentile(run.taken_ms, 0.99) for run in runs],
            [run.server_us for run in runs],
        )
    )  # fmt: skip
    return Row(
        f"bridge, {callers} at once, {stored:,} sessions stored", "1/s", statistics.median(rates),
        at_least(AIMS[callers]), others=max(run.others for run in runs), runs={"ours": rates},
        note=f"p50 {p50:.2f} ms, p99 {p99:.2f} ms; {server_us:.0f} µs of processor each",
    )  # fmt: skip


async def _run(lab: Lab, home: Path, callers: int) -> Run:
    scratch = lab.scratch()
    shutil.copytree(home / "data", scratch / "data")
    async with processes.relay(scratch) as relay:
        (token,) = await pair(relay, 1)
        answering = Answering()
        answering.phone = await dial(relay, token, answering.heard)
        answering.phone.send("bridge", "bridge.status", STATUS)
        answering.phone.send("system", "ping", {"ts": 1})
        async with asyncio.timeout(ANSWER_SECONDS):
            await answering.ready.wait()
        return await _load(relay, dataclasses.replace(relay, key=token), callers)


async def _load(relay: Server, as_device: Server, count: int) -> Run:
    """Closed loop: each connection sends the next as soon as it is answered."""
    taken: list[float] = []
    stop = False

    async def one(caller: Caller) -> None:
        while not stop:
            began = time.perf_counter()
            if await caller.post("/tap", BODY) != b'{"ok":true}':
                raise Broken("an answer is not the phone's")
            taken.append((time.perf_counter() - began) * 1e3)

    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(Caller(as_device)) for _ in range(count)]
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
    return Run(per_second, measured, meter.usage.servers * 1e4 / per_second, meter.usage.others)
