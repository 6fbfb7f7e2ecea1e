"""Devices that come back at once, as after a restart: connect, upgrade, authenticate with a session token."""

from __future__ import annotations

import asyncio
import statistics
import time

from deploy.bench import processes
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile
from deploy.bench.phone import Phone, dial
from deploy.bench.processes import Server
from deploy.bench.report import Row, at_least

DEVICES = 1000
AT_ONCE = 50


async def measure(lab: Lab) -> list[Row]:
    """Each run is on a relay just started: what it remembers of a token must not help."""
    paired = await lab.paired(DEVICES)
    rates, delays_ms, others = [], [], []
    for _ in range(lab.reps):
        paired.age()
        async with processes.relay(paired.scratch, core=None) as relay:  # its database threads count here
            (await dial(relay, paired.tokens[0])).hang_up()
            await lab.quiet()
            with Meter([relay.pid]) as meter:
                delays_ms += await _all(relay, paired.tokens[1:])
            rates.append((DEVICES - 1) / meter.seconds)
            others.append(meter.usage.others)
    return [
        Row(
            f"connect and authenticate, {AT_ONCE} at once", "1/s", statistics.median(rates), at_least(640),
            others=max(others), runs={"ours": rates},
            note=f"p50 {percentile(delays_ms, 0.5):.0f} ms, p99 {percentile(delays_ms, 0.99):.0f} ms",
        )
    ]  # fmt: skip


async def _all(relay: Server, tokens: list[str]) -> list[float]:
    """Milliseconds of each. Every socket stays open until all are."""
    gate = asyncio.Semaphore(AT_ONCE)
    phones: list[Phone] = []
    delays_ms: list[float] = []

    async def one(token: str) -> None:
        async with gate:
            began = time.perf_counter()
            phones.append(await dial(relay, token))
            delays_ms.append((time.perf_counter() - began) * 1e3)

    await asyncio.gather(*map(one, tokens))
    for phone in phones:
        phone.hang_up()
    return delays_ms
