"""A phone that stops reading behind a flood while an end waits for it: what that costs, and when it is cut off."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from socket import SO_RCVBUF, SOL_SOCKET
from typing import Any

import orjson

from app.tasks import Supervisor
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile, resident_kib, server_holds
from deploy.bench.phone import Phone, dial, envelope
from deploy.bench.processes import Broken, Server
from deploy.bench.report import Row, at_most
from deploy.bench.streams import HEAD, Watcher, make_sessions

FLOOD = "bench:100000:0"  # some 33 MB of frames, and 2 MB of text that the turn itself holds
SESSION = "bench-flood"
GROWTH_MIB = 16.0  # half of the frames: they must not have been queued
EVICTED_SECONDS = 12.0  # 10 s of a frame that must go, 1 s for the close frame, and 1 s more
GIVE_UP_SECONDS = 30.0
PING_SECONDS = 0.005
PING = envelope("system", "ping", {}, "p")


@dataclass(slots=True)
class Other:
    """A phone that reads: it pings all the while and gets the kept end as well."""

    end_at: asyncio.Future[float] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    delays_ms: list[float] = field(default_factory=list)
    _sent: list[float] = field(default_factory=list)

    def on_text(self, text: bytes) -> None:
        head = text[:HEAD]
        if b'"pong"' in head:
            self.delays_ms.append((time.perf_counter() - self._sent.pop(0)) * 1e3)
        elif b'"turn.' in head and not self.end_at.done():
            self.end_at.set_result(time.monotonic())

    async def ping_until_end(self, phone: Phone) -> None:
        while not self.end_at.done():
            self._sent.append(time.perf_counter())
            phone.socket.send(PING)
            await asyncio.sleep(PING_SECONDS)


@dataclass(frozen=True, slots=True)
class Outcome:
    growth_mib: float
    ping_p99_ms: float
    others: float
    evicted_after: float = 0.0
    close: str = ""


async def measure(lab: Lab) -> list[Row]:
    await lab.quiet()
    reads = await _flood(lab, stops=False)
    await lab.quiet()
    stops = await _flood(lab, stops=True)
    others = max(reads.others, stops.others)
    return [
        Row(
            "stopped reader: cut off after the kept end", "s", stops.evicted_after, at_most(EVICTED_SECONDS),
            note=f"{stops.close}; the end arrived after a reconnect", others=others,
        ),
        Row(
            "stopped reader: more memory than for one that reads", "MiB", stops.growth_mib - reads.growth_mib,
            at_most(GROWTH_MIB), note=f"grows by {stops.growth_mib:.1f}, reading {reads.growth_mib:.1f}", others=others,
        ),
        Row("stopped reader: ping of another phone, p99", "ms", stops.ping_p99_ms, others=stops.others),
    ]  # fmt: skip


async def _flood(lab: Lab, *, stops: bool) -> Outcome:
    """On a relay of its own, whose memory has held nothing yet."""
    async with lab.relay_and_agent(2) as (relay, agent, tokens):
        await make_sessions(agent, [SESSION])
        other, watcher = Other(), Watcher(SESSION)
        observer, phone = await dial(relay, tokens[0], other.on_text), await dial(relay, tokens[1], watcher.on_text)
        before = resident_kib(relay.pid)
        highest = [before]
        async with Supervisor() as tasks:
            tasks.start(_weigh(relay, highest), "weigh")
            with Meter([relay.pid, agent.pid]) as meter:
                phone.send("chat", "chat.send", {"message": FLOOD, "session_id": SESSION})
                async with asyncio.timeout(GIVE_UP_SECONDS):
                    await watcher.accepted.wait()
                    if stops:
                        _stop_reading(phone)
                    await other.ping_until_end(observer)
            evicted_after, close = await _eviction(relay, phone, other.end_at.result()) if stops else (0.0, "")
        if stops:
            await _end_arrives(relay, tokens[1], phone)
        observer.hang_up()
        growth_mib = (max(highest) - before) / 1024
        return Outcome(growth_mib, percentile(other.delays_ms, 0.99), meter.usage.others, evicted_after, close)


async def _weigh(relay: Server, highest: list[int]) -> None:
    while True:
        highest[0] = max(highest[0], resident_kib(relay.pid))
        await asyncio.sleep(0.05)


def _stop_reading(phone: Phone) -> None:
    """With little room in the kernel, so that it is soon the relay that has to hold or drop."""
    transport = phone.socket.transport
    transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_RCVBUF, 64 * 1024)
    transport.pause_reading()


async def _eviction(relay: Server, phone: Phone, end_at: float) -> tuple[float, str]:
    """Seconds until the relay let go of the connection, and what the phone finds when it reads again."""
    deadline = end_at + GIVE_UP_SECONDS
    while server_holds(relay.port, phone.socket.local_port):
        if time.monotonic() > deadline:
            raise Broken(f"a stopped reader was still connected after {GIVE_UP_SECONDS:.0f} s")
        await asyncio.sleep(0.05)
    after = time.monotonic() - end_at
    phone.socket.transport.resume_reading()
    code = await phone.socket.closed
    return after, f"close {code}" if code else "cut without a close frame"


async def _end_arrives(relay: Server, token: str, before: Phone) -> None:
    """After a reconnect that goes on where the first socket began. Raises Broken if it does not come."""
    arrived: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def on_text(text: bytes) -> None:
        if b'"turn.completed"' in text[:HEAD] and not arrived.done():
            arrived.set_result(orjson.loads(text))

    resume = {"epoch": before.auth["epoch"], "after": before.auth["head"]}
    again = await dial(relay, token, on_text, resume=resume)
    try:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            frame = await arrived
    except TimeoutError:
        raise Broken("the end of the turn did not arrive after a reconnect") from None
    if frame["payload"]["session_id"] != SESSION or "seq" not in frame:
        raise Broken(f"another end arrived: {frame}")
    again.hang_up()
