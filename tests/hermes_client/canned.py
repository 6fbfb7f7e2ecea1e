"""A server that answers each connection with bytes a test wrote down, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from app.hermes.routes import Route

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def answer(status: str, body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in (f"Content-Length: {len(body)}", *headers))
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


@dataclass
class Canned:
    """Sends `pieces` one by one, then closes, or with `stays` keeps the connection open in silence.

    With `in_turn` each piece answers one request.
    """

    pieces: Sequence[bytes]
    stays: bool = False
    in_turn: bool = False
    pause_s: float = 0.0
    requests: list[bytes] = field(default_factory=list)
    port: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a connection has ended
    open: int = 0

    def route(self, **headers: str) -> Route:
        return Route(f"http://127.0.0.1:{self.port}", "127.0.0.1", self.port, False, "", headers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            for number, piece in enumerate(self.pieces or [b""]):
                if self.in_turn or not number:
                    await self._read_request(reader)
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(self.pause_s)
            if self.stays:
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self.open -= 1
            self.left.set()

    async def _read_request(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
        body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
        self.requests.append(head + body)

    async def idle(self) -> None:
        while self.open:
            self.left.clear()
            await self.left.wait()


@asynccontextmanager
async def canned(*pieces: bytes, tls: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[Canned]:
    server = Canned(pieces, **options)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls) as listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server
        await server.idle()
