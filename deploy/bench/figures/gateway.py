"""Hermes' messaging gateway: what a message costs for many devices, and an answer while it is written."""

from __future__ import annotations

import asyncio
import secrets
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile, resident_kib
from deploy.bench.phone import Phone, dial
from deploy.bench.processes import Broken, Server
from deploy.bench.report import Row, at_most
from deploy.bench.websocket import Socket, connect

DEVICES = (1, 10, 100)
MESSAGES = 200
EDITS, EDIT_S = 200, 0.05  # 10 s of an answer, as fast as Hermes edits one
WORD = "and another word of the answer "  # 6 KB in the end
SLOW_S = 0.5  # between two reads of the slow reader
WAL_HEAD, FRAME_HEAD = 32, 24  # bytes; the file format of SQLite's write-ahead log


class Plugin:
    """The other end of the agent link."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._verdict: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._n = 0
        socket.on_text = self._heard

    @classmethod
    async def dial(cls, relay: Server) -> Plugin:
        token = (relay.data_dir / "link-token").read_text().strip()
        headers = f"Authorization: Bearer {token}\r\n"
        plugin = cls(await connect(relay.host, relay.port, target="/agent/link", headers=headers))
        await plugin._ask({"type": "hello", "version": 1, "spool": secrets.token_hex(8)}, "welcome")
        return plugin

    def send(self, frame: dict[str, Any]) -> None:
        self._socket.send(orjson.dumps(frame))

    async def message(self, local_id: str, text: str) -> None:
        """Returns with the verdict. Raises Broken for a refusal."""
        self._n += 1
        said = {"type": "message", "n": self._n, "chat_id": "home", "local_id": local_id, "text": text}
        await self._ask(said | {"reply_to": "bench"}, "ok")

    async def _ask(self, frame: dict[str, Any], expected: str) -> None:
        self._verdict = asyncio.get_running_loop().create_future()
        self.send(frame)
        async with asyncio.timeout(30):
            answer = await self._verdict
        if answer["type"] != expected:
            raise Broken(f"the agent link answered {answer}")

    def _heard(self, text: bytes) -> None:
        if not self._verdict.done():
            self._verdict.set_result(orjson.loads(text))


# a message for many


@dataclass(frozen=True, slots=True)
class Run:
    taken_ms: Sequence[float]
    relay_us: float
    others: float


async def measure(lab: Lab) -> list[Row]:
    rows = []
    for count in DEVICES:
        async with lab.relay(count) as (relay, tokens):
            got = Got(count, MESSAGES * lab.reps)
            phones = [await dial(relay, token, got.counter(at)) for at, token in enumerate(tokens)]
            plugin = await Plugin.dial(relay)
            runs = (await lab.in_turn(ours=lambda r=relay, p=plugin: _messages(r, p)))["ours"]  # type: ignore[misc]
            await got.everything()
            for phone in phones:
                phone.hang_up()
        p50 = [percentile(run.taken_ms, 0.5) for run in runs]
        p99 = statistics.median(percentile(run.taken_ms, 0.99) for run in runs)
        cost = statistics.median(run.relay_us for run in runs)
        rows.append(
            Row(
                f"message of the gateway to {count} device{'s' if count > 1 else ''}, p50", "ms",
                statistics.median(p50), at_most(20) if count == DEVICES[-1] else None,
                note=f"p99 {p99:.1f} ms; processor {cost:.0f} µs each; every device got every one",
                others=max(run.others for run in runs), runs={"ours": p50},
            )
        )  # fmt: skip
    return rows


class Got:
    """How many messages each device got."""

    def __init__(self, devices: int, messages: int) -> None:
        self._counts, self._messages = [0] * devices, messages
        self._all = asyncio.Event()

    def counter(self, at: int) -> Callable[[bytes], None]:
        def on_text(text: bytes) -> None:
            if b'"type":"message"' in text[:64]:
                self._counts[at] += 1
                if min(self._counts) == self._messages:
                    self._all.set()

        return on_text

    async def everything(self) -> None:
        """Raises Broken if something never comes."""
        try:
            async with asyncio.timeout(30):
                await self._all.wait()
        except TimeoutError:
            raise Broken(f"a device got {min(self._counts)} of {self._messages} messages") from None


async def _messages(relay: Server, plugin: Plugin) -> Run:
    taken = []
    with Meter([relay.pid]) as meter:
        for number in range(MESSAGES):
            began = time.perf_counter()
            await plugin.message(secrets.token_hex(8), f"message {number} {'x' * 80}")
            taken.append((time.perf_counter() - began) * 1e3)
    return Run(taken, meter.usage.servers * meter.seconds * 1e4 / MESSAGES, meter.usage.others)


# an answer while it is written


class SlowReader:
    """Reads some, then nothing for a while. What it has read is what the kernel had room for."""

    def __init__(self, phone: Phone) -> None:
        self.phone, self._last, self._wanted = phone, b"", b""
        self._has_it = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._read())
        phone.socket.on_text = self._heard

    async def _read(self) -> None:
        while True:
            self.phone.socket.transport.pause_reading()
            await asyncio.sleep(SLOW_S)
            self.phone.socket.transport.resume_reading()
            await asyncio.sleep(0)

    def _heard(self, text: bytes) -> None:
        if b'"message.' in text[:64]:
            self._last = text
            self._look()
            self.phone.socket.transport.pause_reading()

    def _look(self) -> None:
        if self._wanted and self._wanted in self._last:
            self._has_it.set()

    async def catches_up(self, last: bytes) -> float:
        """Seconds until it has the last version. Raises Broken if that never comes."""
        began, self._wanted = time.perf_counter(), last.rstrip()
        self._look()
        try:
            async with asyncio.timeout(60):
                await self._has_it.wait()
        except TimeoutError:
            raise Broken("a slow reader never got the last version of an answer") from None
        return time.perf_counter() - began

    def stop(self) -> None:
        self._task.cancel()
        self.phone.hang_up()


async def measure_writing(lab: Lab) -> list[Row]:
    commits, growth, late = [], [], []
    others = 0.0
    for _ in range(lab.reps):
        async with lab.relay(2) as (relay, tokens):
            plugin, quick = await Plugin.dial(relay), await dial(relay, tokens[0])
            await _write(plugin, "warm")
            reader = SlowReader(await dial(relay, tokens[1]))
            await lab.quiet()
            log, weighs = relay.data_dir / "talaria.db-wal", resident_kib(relay.pid)
            before = _commits(log)
            with Meter([relay.pid]) as meter:
                last = await _write(plugin, "bench")
            commits.append((_commits(log) - before) / meter.seconds)
            growth.append((resident_kib(relay.pid) - weighs) / 1024)
            others = max(others, meter.usage.others)
            late.append(await reader.catches_up(last))
            reader.stop()
            quick.hang_up()
    about = f"{EDITS} versions in {EDITS * EDIT_S:.0f} s"
    return [
        Row("commits of an answer that is written", "1/s", statistics.median(commits), at_most(2), note=about,
            others=others, runs={"ours": commits}),
        Row("memory of it, with a slow reader", "MiB", statistics.median(growth), at_most(2), note=about,
            others=others, runs={"ours": growth}),
        Row("its last version at a reader of 2 a second", "s", statistics.median(late), at_most(1.5),
            note="after it was written", others=others, runs={"ours": late}),
    ]  # fmt: skip


async def _write(plugin: Plugin, local_id: str) -> bytes:
    """The last version."""
    text = ""
    for _ in range(EDITS if local_id != "warm" else 20):
        text += WORD
        said = {"type": "update", "chat_id": "home", "local_id": local_id, "text": text + " ▉", "reply_to": "bench"}
        plugin.send(said)
        await asyncio.sleep(EDIT_S)
    return text.encode()


def _commits(log: Path) -> int:
    """Of the write-ahead log as it is: each was synced. Frames of before its last restart have other salts."""
    raw = log.read_bytes()
    if len(raw) < WAL_HEAD:
        return 0
    page, salts = struct.unpack(">I", raw[8:12])[0], raw[16:24]
    heads = (raw[at : at + FRAME_HEAD] for at in range(WAL_HEAD, len(raw), FRAME_HEAD + page))
    return sum(head[8:16] == salts and head[4:8] != b"\0\0\0\0" for head in heads)
