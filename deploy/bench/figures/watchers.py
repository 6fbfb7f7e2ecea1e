"""One turn and fifty phones that watch it: frames a second to all of them, beside a loop that only writes."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, cast

import orjson

from deploy.bench import profile
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter
from deploy.bench.phone import Phone, dial
from deploy.bench.processes import Broken, Server, pin
from deploy.bench.report import Row, at_least, compared
from deploy.bench.streams import STREAM_SECONDS, check_route, make_sessions

WATCHERS = 50
DELTAS = 4000
FRAMES_PER_SECOND = 300_000
PROFILED = 4  # turns more, under the profiler: the figure itself is taken without it
STRIDE = 64  # deltas that the stand-in's dashboard, and the floor, write before others run
DELTA = b',"event":"assistant.delta",'
SNAPSHOT = b'"type":"turn.snapshot"'
END = b'"type":"turn.completed"'
FAILED = b'"type":"turn.failed"'
# A frame as the relay sends one, of the same length.
SAMPLE = (
    '{"channel":"chat","type":"stream.event","id":"turn-0123456789abcdef0123456789abcdef","payload":{"type":'
    '"stream.event","schema_version":1,"session_id":"bench-watched-1","run_id":"turn-0123456789abcdef0123456789abcdef"'
    ',"turn_id":"turn-0123456789abcdef0123456789abcdef","seq":1000,"event":"assistant.delta","ts":'
    '"2026-01-01T00:00:00.000Z","payload":{"delta":"t=123456789012345 "}}}'
)
# Where the relay's time goes, by who was called for it.
PLACES = {
    "Encoder.": "encode",
    "WebSocketProtocol.write": "frame and write",
    "WebSocketProtocol._flush": "frame and write",
    "WebSocketProtocol._pass_is_over": "frame and write",
    "Connection.offer": "hand on",
    "Outbound.": "hand on",
    "Watchers.": "join",
    "fold ": "fold",
    "_delta (app/turns": "fold",
    "Text.": "fold",
    "Turn.take": "fold",
    "TurnListener.": "read",
    "Connection._read": "read",
    "_Exchange.": "read",
    "ClientConnection.": "read",
    "Database.": "store",
    "_worker (concurrent": "store",
    "Runner.run": "loop and system calls of reading",
}

_numbers = itertools.count(1)


class Reader(asyncio.Protocol):
    """Counts what a socket brings without looking at each frame: it has to cost less than what sends it.

    Pings are not answered: the relay's first one comes later than the end.
    """

    transport: asyncio.Transport

    def __init__(self, expected: int = 0) -> None:
        """It has ended after so many deltas, or with the turn."""
        self.deltas = self.snapshots = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected = expected
        self._rest = b""

    def itself(self) -> Self:
        """A protocol factory, for one connection."""
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        whole, _, self._rest = (self._rest + data).rpartition(b"}")  # which is in no mark
        self.deltas += whole.count(DELTA)
        self.snapshots += whole.count(SNAPSHOT)
        if FAILED in whole:
            self._end(Broken(f"the turn failed: {whole[-500:]!r}"))
        elif END in whole or (self._expected and self.deltas >= self._expected):
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Broken("a watcher was cut off"))

    def _end(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error) if error else self.ended.set_result(None)


@dataclass(frozen=True, slots=True)
class Run:
    per_second: float
    server_us: float  # processor time for each frame: noise hardly touches it
    others: float


async def measure(lab: Lab) -> list[Row]:
    return [await _measure(lab, dashboard=dashboard) for dashboard in (False, True)]


async def _measure(lab: Lab, *, dashboard: bool) -> Row:
    async with lab.raw_fan() as fan, lab.relay_and_agent(WATCHERS, dashboard=dashboard) as (relay, agent, tokens):
        pin(1, agent.pid)

        async def watched() -> Run:
            return await _watched(relay, agent, tokens, "dashboard" if dashboard else "session_stream")

        runs = await lab.in_turn(raw=lambda: _raw(fan), ours=watched)
        async with profile.sampled(relay.pid, PLACES, lab.scratch()) as shares:
            for _ in range(PROFILED):
                await watched()
    return _row(runs["ours"], runs["raw"], shares, dashboard=dashboard)


def _row(ours: Sequence[Run], raw: Sequence[Run], shares: dict[str, float], *, dashboard: bool) -> Row:
    cost = [statistics.median(run.server_us for run in side) for side in (ours, raw)]
    spent = ", ".join(f"{place} {share:.0%}" for place, share in shares.items())
    return compared(
        f"frames to {WATCHERS} watchers of a turn{', dashboard' if dashboard else ''}", "1/s",
        [run.per_second for run in ours], [run.per_second for run in raw], "raw",
        aim=at_least(FRAMES_PER_SECOND), others=max(run.others for run in (*ours, *raw)),
        note=f"processor {cost[0]:.2f} µs each, raw {cost[1]:.2f}; every watcher got every delta"
        + (f"; {spent}" if spent else ""),
    )  # fmt: skip


async def _watched(relay: Server, agent: Server, tokens: list[str], route: str) -> Run:
    session = f"bench-watched-{next(_numbers)}"
    await make_sessions(agent, [session])
    phones = [await dial(relay, token) for token in tokens]
    readers = [_listen(phone, session) for phone in phones]
    await asyncio.sleep(0.1)  # they watch
    try:
        run = await _timed(
            relay, readers,
            lambda: phones[0].send("chat", "chat.send", {"message": f"bench:{DELTAS}:0", "session_id": session}),
        )  # fmt: skip
    finally:
        for phone in phones:
            phone.send("system", "ack", {"epoch": phone.auth["epoch"], "seq": phone.auth["head"] + 1})
            phone.socket.transport.close()
    check_route(relay, [session], route)
    snapshots = sum(reader.snapshots for reader in readers)
    if snapshots or any(reader.deltas != DELTAS for reader in readers):
        got = sorted({reader.deltas for reader in readers})
        raise Broken(f"not every watcher got every delta of {DELTAS}: {got}, and {snapshots} snapshots for all")
    return run


def _listen(phone: Phone, session: str) -> Reader:
    phone.send("chat", "chat.watch", {"session_id": session})
    reader = Reader()
    phone.socket.transport.set_protocol(reader)
    return reader


async def _raw(fan: Server) -> Run:
    loop = asyncio.get_running_loop()
    readers = [Reader(DELTAS) for _ in range(WATCHERS)]
    for reader in readers:
        await loop.create_connection(reader.itself, fan.host, fan.port)
    order = {"frame": SAMPLE, "count": DELTAS, "stride": STRIDE, "clients": WATCHERS}
    try:
        return await _timed(fan, readers, lambda: readers[0].transport.write(orjson.dumps(order)))
    finally:
        for reader in readers:
            reader.transport.abort()


async def _timed(server: Server, readers: list[Reader], begin: Callable[[], None]) -> Run:
    with Meter([server.pid]) as meter:
        begin()
        async with asyncio.timeout(STREAM_SECONDS):
            await asyncio.gather(*(reader.ended for reader in readers))
    frames = sum(reader.deltas for reader in readers)
    return Run(
        per_second=frames / meter.seconds,
        server_us=meter.usage.servers * meter.seconds * 1e4 / max(1, frames),
        others=meter.usage.others,
    )
