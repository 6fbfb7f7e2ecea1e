"""Phones that pair at once, beside few devices and beside many: `POST /pairing/redeem`."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson

from app.bootstrap import open_relay
from app.db import Tx
from app.outbox import store as outbox
from app.sessions import store as devices
from app.settings import load_settings
from deploy.bench import processes
from deploy.bench.calls import Caller
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter
from deploy.bench.phone import SUPPORTS
from deploy.bench.report import Row, at_least, compared

FEW, MANY = 10, 2_000
PAIRED = 400  # in a run
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Run:
    minted: float  # a second
    redeemed: float
    server_us: float  # processor time a pairing takes at the relay: noise hardly touches it
    others: float


async def measure(lab: Lab) -> list[Row]:
    few, many = await inhabited(lab, FEW), await inhabited(lab, MANY)
    runs = await lab.in_turn(few=partial(_run, lab, few), many=partial(_run, lab, many))
    others = max(run.others for side in runs.values() for run in side)
    rates = {side: [run.redeemed for run in found] for side, found in runs.items()}
    return [
        Row(
            f"pairing, {AT_ONCE} at once, {FEW} devices before", "1/s", statistics.median(rates["few"]),
            at_least(200), note=_note(runs["few"]), others=others, runs={"ours": rates["few"]},
        ),
        compared(
            f"pairing, {AT_ONCE} at once, {MANY:,} devices before", "1/s", rates["many"], rates["few"], f"with {FEW}",
            aim=at_least(0.7, of="ratio"), others=others, note=_note(runs["many"]),
        ),
    ]  # fmt: skip


def _note(runs: Sequence[Run]) -> str:
    minted, server_us = (statistics.median(getattr(run, name) for run in runs) for name in ("minted", "server_us"))
    return f"{server_us:.0f} µs of processor each; codes made before, {minted:,.0f} a second"


async def inhabited(lab: Lab, count: int) -> Path:
    """A stopped relay's directory with that many paired devices, all of which messages are kept for."""
    scratch = lab.scratch()
    environ = {"TALARIA_DATA_DIR": str(scratch / "data"), "TALARIA_HERMES_API_URL": ""}
    async with open_relay(load_settings(environ, scratch / ".env")) as relay:

        def work(tx: Tx) -> None:
            for number in range(count):
                device, now = f"before-{number}", time.time()
                devices.put_device(tx, device, name=device, about={}, now=now)
                outbox.open_mailbox(tx, device)
                outbox.join_audience(tx, device)
                relay.sessions.issue(tx, device, None, None, now)

        await relay.db.write(work)
    return scratch


async def _run(lab: Lab, inhabited: Path) -> Run:
    """On a copy, so that each run begins with as many devices."""
    scratch = lab.scratch()
    shutil.copytree(inhabited / "data", scratch / "data")
    async with processes.relay(scratch) as relay, AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(Caller(relay)) for _ in range(AT_ONCE)]
        began = time.perf_counter()
        minted = await _each(callers, "/pairing/mint", [b"{}"] * PAIRED)
        minting = time.perf_counter() - began
        bodies = [
            orjson.dumps(
                {"pairing_code": orjson.loads(offer)["code"], "device_id": f"new-{number}", "supports": SUPPORTS}
            )
            for number, offer in enumerate(minted)
        ]
        with Meter([relay.pid]) as meter:
            await _each(callers, "/pairing/redeem", bodies)
        redeemed = PAIRED / meter.seconds
        return Run(PAIRED / minting, redeemed, meter.usage.servers * 1e4 / redeemed, meter.usage.others)


async def _each(callers: Sequence[Caller], path: str, bodies: Sequence[bytes]) -> list[bytes]:
    left = iter(bodies)
    answers: list[bytes] = []

    async def one(caller: Caller) -> None:
        answers.extend([await caller.post(path, body) for body in left])

    await asyncio.gather(*map(one, callers))
    return answers
