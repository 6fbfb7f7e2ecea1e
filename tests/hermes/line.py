"""The line between a relay and Hermes: it can be dropped, and go deaf before, so that no answer comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

LOGIN = b"POST /auth/password-login HTTP/1.1\r\n"


class Line:
    """`caller`: the address that logs in over it. Hermes takes ten logins a minute from each."""

    def __init__(self, target: str, caller: str | None = None) -> None:
        self._target, self._caller = urlsplit(target), caller
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

    async def _heard(self, data: bytes) -> bytes:
        if self._after is not None and self._after in data:
            self._hears.clear()
        if self._caller is not None and data.startswith(LOGIN):
            return LOGIN + f"X-Forwarded-For: {self._caller}\r\n".encode() + data.removeprefix(LOGIN)
        return data

    async def _answered(self, data: bytes) -> bytes:
        await self._hears.wait()
        return data


async def _pour(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: Callable[[bytes], Awaitable[bytes]]
) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(await passed(data))
            await writer.drain()
    except ConnectionError:
        writer.transport.abort()  # as it came: a reset, not an end
    finally:
        writer.close()


@asynccontextmanager
async def laid(target: str, caller: str | None = None) -> AsyncIterator[Line]:
    line = Line(target, caller)
    server = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        server.close()
        line.drop()
        await server.wait_closed()
