"""The Hermes API through the relay: what a request costs more than straight, than nginx, than a plain httpx proxy."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from deploy.bench import nginx, processes
from deploy.bench.calls import Caller
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, peak_kib, percentile
from deploy.bench.phone import pair
from deploy.bench.processes import Broken, Server
from deploy.bench.report import Row, at_least, at_most, compared
from deploy.bench.streams import Stream

MB = 1_000_000
BLOCK = bytes(MB)
SMALL, LARGE = 8, 1000  # of those
REQUESTS = 2000
STREAMS, EVENTS, INTERVAL_MS = 200, 40, 100
WAIT_S = 60

Sides = Mapping[str, Server]


@dataclass(frozen=True, slots=True)
class Run:
    value: float
    us: float = 0.0  # processor time of the server for each
    others: float = 0.0


async def measure(lab: Lab) -> list[Row]:
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(processes.origin(lab.scratch()))
        relay = await stack.enter_async_context(processes.relay(lab.scratch(), origin))
        device = dataclasses.replace(relay, key=(await pair(relay, 1))[0])
        sides = {"direct": origin, "relay": device}
        sides["httpx"] = await stack.enter_async_context(processes.httpx_proxy(lab.scratch(), origin))
        if (program := nginx.found()) is not None:
            sides["nginx"] = await stack.enter_async_context(processes.nginx_proxy(lab.scratch(), origin, program))
        rows = [*await _small(lab, sides), *await _large(lab, sides), *await _streams(lab, sides)]
    if program is None:
        rows[0] = dataclasses.replace(rows[0], note=f"{rows[0].note}; no nginx here: apt install nginx-light")
    return rows


async def _each(lab: Lab, sides: Sides, run: Callable[[Server], Awaitable[Run]]) -> dict[str, list[Run]]:
    return await lab.in_turn(**{name: partial(run, server) for name, server in sides.items()})


# one small request after the other


async def _small(lab: Lab, sides: Sides) -> list[Row]:
    runs = await _each(lab, sides, _gets)
    base = statistics.median(run.value for run in runs["direct"])
    added = {name: [run.value - base for run in side] for name, side in runs.items() if name != "direct"}
    us = {name: statistics.median(run.us for run in side) for name, side in runs.items()}
    beside = "nginx" if "nginx" in added else "httpx"
    note = (
        f"processor {us['relay']:.0f} µs, {beside} {us[beside]:.0f}; httpx adds {statistics.median(added['httpx']):.2f}"
    )
    return [
        compared(
            "small GET passed on, added p50", "ms", added["relay"], added[beside], beside, aim=at_most(1.0),
            others=max(run.others for run in runs["relay"]), note=f"{note}; straight {base:.2f} ms",
        )
    ]  # fmt: skip


async def _gets(server: Server) -> Run:
    taken = []
    async with Caller(server) as caller:
        for _ in range(REQUESTS // 10):
            await caller.get("/v1/models")
        with Meter([server.pid]) as meter:
            for _ in range(REQUESTS):
                began = time.perf_counter()
                await caller.get("/v1/models")
                taken.append((time.perf_counter() - began) * 1e3)
    us = meter.usage.servers * 1e4 * meter.seconds / REQUESTS
    return Run(percentile(taken, 0.5), us, meter.usage.others)


# a gigabyte each way


async def _large(lab: Lab, sides: Sides) -> list[Row]:
    sides = {name: side for name, side in sides.items() if name != "direct"}
    relay, rows = sides["relay"], []
    for way in (_up, _down):
        await asyncio.to_thread(way, relay, SMALL)
    before = peak_kib(relay.pid)
    for name, way in (("up", _up), ("down", _down)):
        runs = await _each(lab, sides, partial(_rate, way))
        rates = {side: [run.value for run in found] for side, found in runs.items()}
        also = f"; nginx {statistics.median(rates['nginx']):.0f}" if "nginx" in rates else ""
        rows.append(
            compared(
                f"{LARGE} MB passed on, {name}", "MB/s", rates["relay"], rates["httpx"], "uvicorn + httpx",
                aim=at_least(0.6, of="ratio"), others=max(run.others for run in runs["relay"]),
                note=f"one connection{also}",
            )
        )  # fmt: skip
    grown = (peak_kib(relay.pid) - before) / 1024
    return [*rows, Row(f"more memory for {LARGE} MB passed on than for {SMALL} MB", "MiB", grown, at_most(8))]


async def _rate(way: Callable[[Server, int], float], server: Server) -> Run:
    with Meter([server.pid]) as meter:
        seconds = await asyncio.to_thread(way, server, LARGE)
    return Run(LARGE / seconds, others=meter.usage.others)


def _up(server: Server, blocks: int) -> float:
    with socket.create_connection((server.host, server.port)) as wire:
        began = time.perf_counter()
        wire.sendall(_head(server, f"POST /v1/bytes/{blocks}", f"Content-Length: {blocks * MB}\r\n"))
        for _ in range(blocks):
            wire.sendall(BLOCK)
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
        seconds = time.perf_counter() - began
    if f'"taken":{blocks * MB}'.encode() not in answer:
        raise Broken(f"{blocks} MB up were answered {answer[:300]!r}")
    return seconds


def _down(server: Server, blocks: int) -> float:
    buffer, got = bytearray(MB), 0
    with socket.create_connection((server.host, server.port)) as wire:
        began = time.perf_counter()
        wire.sendall(_head(server, f"GET /v1/bytes/{blocks}", ""))
        while count := wire.recv_into(buffer):
            got += count
        seconds = time.perf_counter() - began
    if got <= blocks * MB:  # a head comes before
        raise Broken(f"{got} bytes of {blocks * MB} came down")
    return seconds


def _head(server: Server, request: str, headers: str) -> bytes:
    bearer = f"Authorization: Bearer {server.key}\r\n" if server.key else ""
    return f"{request} HTTP/1.1\r\nHost: {server.host}\r\n{bearer}Connection: close\r\n{headers}\r\n".encode()


# many streams of events


async def _streams(lab: Lab, sides: Sides) -> list[Row]:
    runs = await _each(lab, sides, _events)
    p50 = {name: statistics.median(run.value for run in side) for name, side in runs.items()}
    us = {name: statistics.median(run.us for run in side) for name, side in runs.items()}
    beside = "nginx" if "nginx" in runs else "httpx"
    added = {name: [run.value - p50["direct"] for run in runs[name]] for name in ("relay", beside)}
    return [
        compared(
            f"{STREAMS} streams passed on, added p50", "ms", added["relay"], added[beside], beside,
            others=max(run.others for run in runs["relay"]),
            note="every event arrived; processor "
            f"{us['relay']:.0f} µs each, {beside} {us[beside]:.0f}, httpx {us['httpx']:.0f}",
        )
    ]  # fmt: skip


async def _events(server: Server) -> Run:
    """Each event carries when it was made; which way it came hardly tells in one of them, so all are taken together."""
    with Meter([server.pid]) as meter:
        async with asyncio.timeout(WAIT_S):
            read = await asyncio.gather(*(_stream(server) for _ in range(STREAMS)))
    delays = [delay for stream in read for _, delay in stream.arrivals]
    if len(delays) != STREAMS * EVENTS:
        raise Broken(f"{len(delays)} events of {STREAMS * EVENTS} arrived")
    return Run(percentile(delays, 0.5), meter.usage.servers * 1e4 * meter.seconds / len(delays), meter.usage.others)


async def _stream(server: Server) -> Stream:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(_head(server, f"GET /v1/events/{EVENTS}/{INTERVAL_MS}", ""))
    stream, rest = Stream(), b""
    while data := await reader.read(65536):
        whole, _, rest = (rest + data).rpartition(b"\n")
        stream.scan(whole)
    writer.close()
    return stream
