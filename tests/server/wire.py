"""A WebSocket client without a library: for what no well-behaved client does."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

WAIT = 15.0
TEXT, CONTINUATION, CLOSE, PING, PONG = 1, 0, 8, 9, 10


def frame(opcode: int, data: bytes = b"", *, fin: bool = True) -> bytes:
    """Masked with zeros, so that the data stands as it is."""
    first = bytes([opcode | (0x80 if fin else 0)])
    if len(data) < 126:
        return first + bytes([0x80 | len(data)]) + bytes(4) + data
    return first + b"\xfe" + struct.pack(">H", len(data)) + bytes(4) + data


@dataclass(slots=True)
class Wire:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def stop_reading(self) -> None:
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def next(self) -> tuple[int, bytes]:
        """Opcode and data of the next frame."""
        async with asyncio.timeout(WAIT):
            first, size = await self.reader.readexactly(2)
            if size == 126:
                size = struct.unpack(">H", await self.reader.readexactly(2))[0]
            return first & 0x0F, await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """All that still comes until the other side ends."""
        async with asyncio.timeout(WAIT):
            return await self.reader.read()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Wire]:
    """A connection that has said nothing yet."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def upgraded(url: str) -> AsyncIterator[Wire]:
    async with connected(url) as wire:
        key = base64.b64encode(os.urandom(16))
        await wire.send(
            b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
        )
        async with asyncio.timeout(WAIT):
            assert b" 101 " in await wire.reader.readuntil(b"\r\n\r\n")
        yield wire
