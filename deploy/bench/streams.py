"""Streams of deltas, read straight from the stand-in and through the relay. Each delta carries when it was made."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Self, cast

import orjson

from deploy.bench.phone import dial
from deploy.bench.processes import Broken, Server

STAMP = re.compile(rb"t=(\d+) ")
STREAM_SECONDS = 90
HEAD = 64  # bytes of a frame that hold its channel and type


Arrival = tuple[float, float]  # when (perf_counter), and milliseconds since it was made


class Stream:
    """One stream's deltas as they arrive. Counts stamps, not frames: deltas may come joined."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.snapshots = 0

    def scan(self, text: bytes) -> None:
        at, now = time.perf_counter(), time.monotonic_ns()
        for stamp in STAMP.findall(text):
            self.arrivals.append((at, (now - int(stamp)) / 1e6))


class Flow:
    """What came of streams that ran together."""

    def __init__(self, streams: Sequence[Stream], started: float) -> None:
        self.snapshots = sum(stream.snapshots for stream in streams)
        self.all_ms = [delay for stream in streams for _, delay in stream.arrivals]
        self.per_second = len(self.all_ms) / (max(stream.arrivals[-1][0] for stream in streams) - started)
        # Steady: every stream has begun and none has ended. Beginning a turn costs far more than a delta.
        begin = max(stream.arrivals[0][0] for stream in streams)
        end = min(stream.arrivals[-1][0] for stream in streams)
        self.steady_ms = [delay for stream in streams for at, delay in stream.arrivals if begin <= at <= end]


async def make_sessions(agent: Server, names: Iterable[str]) -> None:
    async with agent.http() as http:
        for name in names:
            (await http.post("/api/sessions", json={"id": name})).raise_for_status()


async def direct(agent: Server, sessions: list[str], message: str) -> Flow:
    loop = asyncio.get_running_loop()
    readers = [_EventReader(agent, session, message) for session in sessions]
    for reader in readers:
        await loop.create_connection(reader.itself, agent.host, agent.port)
    started = time.perf_counter()
    for reader in readers:
        reader.ask()
    async with asyncio.timeout(STREAM_SECONDS):
        await asyncio.gather(*(reader.ended for reader in readers))
    return Flow(readers, started)


class _EventReader(Stream, asyncio.Protocol):
    """One POST whose answer is a stream. Reads no chunk sizes: a stamp is a stamp."""

    transport: asyncio.Transport

    def __init__(self, agent: Server, session: str, message: str) -> None:
        super().__init__()
        body = orjson.dumps({"message": message})
        self._request = (
            f"POST /api/sessions/{session}/chat/stream HTTP/1.1\r\nHost: {agent.host}:{agent.port}\r\n"
            f"Authorization: Bearer {agent.key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self._rest = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def itself(self) -> Self:
        """A protocol factory, for one connection."""
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def ask(self) -> None:
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        whole, _, self._rest = (self._rest + data).rpartition(b"\n")
        if b"assistant.delta" in whole:
            self.scan(whole)
        if b"event: done" in whole:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(None)


class Watcher(Stream):
    """A phone that begins one turn and reads it to its kept end."""

    def __init__(self, session: str) -> None:
        super().__init__()
        self.session = session
        self.accepted = asyncio.Event()
        self.end: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.end_at = 0.0  # monotonic
        self.seq = 0

    def on_text(self, text: bytes) -> None:
        head = text[:HEAD]
        if b'"stream.event"' in head:
            self.scan(text)
        elif b'"turn.snapshot"' in head:
            self.snapshots += 1
        elif b'"turn.' in head:
            self._ended(orjson.loads(text))
        elif b'"chat.accepted"' in head:
            self.accepted.set()
        elif b'"system","type":"error"' in head or b'"chat.error"' in head:
            self._fail(text)

    def _ended(self, frame: dict[str, Any]) -> None:
        self.seq = max(self.seq, frame.get("seq", 0))
        payload = frame["payload"]
        if payload["session_id"] != self.session or self.end.done():
            return  # the end of another phone's turn: ends go to every device
        if payload["finish"] != "completed":
            self._fail(orjson.dumps(frame))
            return
        self.end_at = time.monotonic()
        self.end.set_result(payload)

    def _fail(self, text: bytes) -> None:
        if not self.end.done():
            self.end.set_exception(Broken(f"a turn failed: {text[:500]!r}"))


def check_route(relay: Server, sessions: Sequence[str], route: str) -> None:
    """Raises Broken unless all turns of these sessions ran over this kind of upstream."""
    asked = "SELECT json_extract(lease, '$.route'), count(*) FROM turns WHERE session_id = ? GROUP BY 1"
    with closing(sqlite3.connect(relay.data_dir / "talaria.db")) as db:
        ran = {row for session in sessions for row in db.execute(asked, (session,))}
    if ran != {(route, 1)}:
        raise Broken(f"each session was to have one turn over the {route}, and had {ran}")


async def relayed(relay: Server, tokens: list[str], sessions: list[str], message: str) -> Flow:
    """One phone to a session, each with its own token. Raises Broken for a turn that did not complete."""
    watchers = [Watcher(session) for session in sessions]
    phones = [await dial(relay, token, w.on_text) for token, w in zip(tokens, watchers, strict=False)]
    started = time.perf_counter()
    for phone, watcher in zip(phones, watchers, strict=True):
        phone.send("chat", "chat.send", {"message": message, "session_id": watcher.session})
    try:
        async with asyncio.timeout(STREAM_SECONDS):
            await asyncio.gather(*(watcher.end for watcher in watchers))
    finally:
        for phone, watcher in zip(phones, watchers, strict=True):
            phone.send("system", "ack", {"epoch": phone.auth["epoch"], "seq": watcher.seq})
            phone.socket.transport.close()
    return Flow(watchers, started)
