"""An envelope there and back: `system/ping` at the relay against a bare echo of the same bytes."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile
from deploy.bench.phone import dial, envelope
from deploy.bench.processes import Broken, Server
from deploy.bench.report import Row, at_least, compared
from deploy.bench.websocket import Socket, connect, frame

WARM_SECONDS = 0.3
SECONDS = 2.5
CONNECTIONS = (1, 50)
MESSAGE = envelope("system", "ping", {"ts": 1740000000000}, "p")


@dataclass(frozen=True, slots=True)
class Run:
    per_second: float
    p50_ms: float
    server_us: float  # processor time a round trip takes at the server: noise hardly touches it
    others: float


async def measure(lab: Lab) -> list[Row]:
    rows = []
    async with lab.bare_echo() as bare, lab.relay(max(CONNECTIONS)) as (relay, tokens):
        for count in CONNECTIONS:

            async def echo(count: int = count) -> Run:
                return await _run(bare, [await connect(bare.host, bare.port) for _ in range(count)])

            async def ours(count: int = count) -> Run:
                return await _run(relay, [(await dial(relay, token)).socket for token in tokens[:count]])

            runs = await lab.in_turn(bare=echo, ours=ours)
            rows.append(_row(count, runs["ours"], runs["bare"]))
    return rows


def _row(count: int, ours: Sequence[Run], bare: Sequence[Run]) -> Row:
    p50_ms, server_us = (
        [statistics.median(getattr(run, name) for run in side) for side in (ours, bare)]
        for name in ("p50_ms", "server_us")
    )
    return compared(
        f"ping round trips, {count} connection{'s' if count > 1 else ''}", "1/s",
        [run.per_second for run in ours], [run.per_second for run in bare], "bare",
        aim=at_least(0.8, of="ratio"), others=max(run.others for run in (*ours, *bare)),
        note=f"p50 {p50_ms[0]:.3f} ms, bare {p50_ms[1]:.3f}; processor {server_us[0]:.0f} µs, bare {server_us[1]:.0f}",
    )  # fmt: skip


async def _run(server: Server, sockets: list[Socket]) -> Run:
    """Closed loop: each connection sends the next as soon as it is answered."""
    clients = [_Pinger(socket) for socket in sockets]
    await asyncio.sleep(0.05)  # what follows auth.ok
    for client in clients:
        client.begin()
    await asyncio.sleep(WARM_SECONDS)
    for client in clients:
        client.taken.clear()
    with Meter([server.pid]) as meter:
        await asyncio.sleep(SECONDS)
        taken = [seconds for client in clients for seconds in client.taken]
    for client in clients:
        client.end()
    if not taken:
        raise Broken("no ping was answered")
    per_second = len(taken) / meter.seconds
    return Run(per_second, percentile(taken, 0.5) * 1e3, meter.usage.servers * 1e4 / per_second, meter.usage.others)


class _Pinger:
    def __init__(self, socket: Socket) -> None:
        self.taken: list[float] = []
        self._socket = socket
        self._write = socket.transport.write
        self._frame = frame(MESSAGE)
        self._sent = 0.0

    def begin(self) -> None:
        self._socket.on_text = self._answered
        self._sent = time.perf_counter()
        self._write(self._frame)

    def _answered(self, _: bytes) -> None:
        now = time.perf_counter()
        self.taken.append(now - self._sent)
        self._sent = now
        self._write(self._frame)

    def end(self) -> None:
        self._socket.transport.abort()
