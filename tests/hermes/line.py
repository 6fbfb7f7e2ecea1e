"""The line between a relay and Hermes: it can be dropped, and go deaf before, so that no answer comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Line:
    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self._ends: set[asyncio.StreamWriter] = set()
        self._hears = asyncio.Event()
        self._hears.set()
        self._after: bytes | None = None
        self.url = ""

    def deafen(self, after: str | None = None) -> None:
        """What the relay says still arrives. `after`: not before it says this."""
        if after is None:
            self._hears.clear()
        else:
            self._after = after.encode()

    def drop(self) -> None:
        """Every connection is reset. The next ones are whole."""
        for end in self._ends:
            end.transport.abort()
        self._after = None
        self._hears.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._ends |= ends
        try:
            await asyncio.gather(
                _pour(reader, far_writer, self._heard), _pour(far_reader, writer, self._answered)
            )  # fmt: skip
        finally:
            self._ends -= ends

    async def _heard(self, data: bytes) -> None:
        if self._after is not None and self._after in data:
            self._hears.clear()

    async def _answered(self, data: bytes) -> None:
        await self._hears.wait()


async def _pour(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: Callable[[bytes], Awaitable[None]]
) -> None:
    try:
        while data := await reader.read(65536):
            await first(data)
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        writer.transport.abort()  # as it came: a reset, not an end
    finally:
        writer.close()


@asynccontextmanager
async def laid(target: str) -> AsyncIterator[Line]:
    line = Line(target)
    server = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        server.close()
        line.drop()
        await server.wait_closed()
