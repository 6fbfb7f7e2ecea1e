"""A server that answers each route with bytes a test wrote down, in order, the last one again and again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.hermes.upstream import Event
from tests.hermes_client.canned import END, STREAM, answer, chunk

CUT = b""  # the connection is closed without an answer
HERE = Path(__file__).parent


def said(body: Any, status: str = "200 OK") -> bytes:
    return answer(status, json.dumps(body).encode(), "Content-Type: application/json")


def refused(status: str, code: str | None, message: str = "no") -> bytes:
    return said({"error": {"message": message, "code": code}}, status)


def streamed(*blocks: str, ends: bool = True) -> bytes:
    """A stream of these blocks, such as 'data: {}'."""
    body = "".join(f"{block}\n\n" for block in blocks).encode()
    return STREAM + (chunk(body) if body else b"") + (END if ends else b"")


def capabilities(version: str = "0.19") -> dict[str, Any]:
    """As that version was recorded."""
    path = HERE / f"capabilities_{version.replace('.', '_')}.json"
    recorded: dict[str, Any] = json.loads(path.read_text())
    return recorded


def health(pid: int = 1) -> bytes:
    return said({"pid": pid, "platforms": {"api_server": {"updated_at": "then"}}})


@dataclass
class Routed:
    """`answers` has 'METHOD /path' → answers. What is not there is 404. `held` streams stay open after their bytes."""

    answers: Mapping[str, Sequence[bytes]]
    held: frozenset[str] = frozenset()
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)  # route, headers, body
    port: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a connection has ended
    dropped: asyncio.Event = field(default_factory=asyncio.Event)  # one of a held route
    open: int = 0
    _turn: dict[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bodies(self, route: str) -> list[Any]:
        return [body for asked, _, body in self.requests if asked == route]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self.open -= 1
            self.left.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                route = await self._read(reader)
                given = self.answers.get(route, [answer("404 Not Found", b"404: Not Found")])
                at = self._turn.get(route, 0)
                self._turn[route] = at + 1
                raw = given[min(at, len(given) - 1)]
                writer.write(raw)
                await writer.drain()
                if route in self.held:
                    await reader.read()
                    self.dropped.set()
                if raw == CUT or raw.startswith(STREAM):
                    break

    async def idle(self) -> None:
        async with asyncio.timeout(10):
            while self.open:
                self.left.clear()
                await self.left.wait()

    async def _read(self, reader: asyncio.StreamReader) -> str:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = first.split(" ")
        self.requests.append((f"{method} {path}", headers, json.loads(body) if body else None))
        return f"{method} {path}"


@asynccontextmanager
async def routed(
    answers: Mapping[str, Sequence[bytes]], version: str = "0.19", **options: Any
) -> AsyncIterator[Routed]:
    """That version of Hermes, with these answers beside what it says of itself."""
    about = {
        "GET /health": [said({"version": f"{version}.0"})],
        "GET /health/detailed": [health()],
        "GET /v1/capabilities": [said(capabilities(version))],
    }
    server = Routed({**about, **answers}, **options)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server
        await server.idle()


class Heard:
    """A hearer that remembers."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        self.runs: list[str | None] = []
        self.news = asyncio.Event()

    def events(self, events: Sequence[Event]) -> None:
        self.all += events
        self.news.set()

    def accepted(self, run_id: str | None = None) -> None:
        self.runs.append(run_id)

    def restated(self, text: str) -> None:
        raise AssertionError(text)

    async def silent(self) -> bool:
        raise AssertionError

    async def until(self, name: str) -> None:
        async with asyncio.timeout(10):
            while name not in self.names():
                self.news.clear()
                await self.news.wait()

    def names(self) -> list[str]:
        return [name for name, _ in self.all]

    def text(self) -> str:
        return "".join(body["delta"] for name, body in self.all if name == "assistant.delta" and body)
