"""The network between the page and the relay: a TCP proxy that can be cut and plugged in again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from app.demo.stand_in import StandIn
from tests.relay import RunningRelay, running, settings_for

KEY = "stand-in-key-0123456789"


class Cable:
    """While it is cut, connections are reset: those there are, and those that are tried."""

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None  # known once the relay listens
        self.port = 0
        self.is_cut = False
        self.refused = 0
        self._ends: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plug_into(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.target = (parts.hostname, parts.port)

    def cut(self) -> None:
        self.is_cut = True
        for end in self._ends:
            end.transport.abort()

    def mend(self) -> None:
        self.is_cut = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut or self.target is None:
            self.refused += 1
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(*self.target)
        ends = {writer, far_writer}
        self._ends |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pour(reader, far_writer))
                group.create_task(_pour(far_reader, writer))
        finally:
            self._ends -= ends


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def laid() -> AsyncIterator[Cable]:
    cable = Cable()
    server = await asyncio.start_server(cable.carry, "127.0.0.1", 0)
    cable.port = server.sockets[0].getsockname()[1]
    try:
        yield cable
    finally:
        server.close()
        cable.cut()
        await server.wait_closed()


@asynccontextmanager
async def behind(cable: Cable, hermes: StandIn, data_dir: Path, **more: str) -> AsyncIterator[RunningRelay]:
    """A relay at the far end, whose origin is the cable's: pages are served from there."""
    settings = settings_for(data_dir, HERMES_API_URL=hermes.url, HERMES_API_KEY=KEY, PUBLIC_URL=cable.url, **more)
    async with running(settings) as relay:
        cable.plug_into(relay.url)
        yield relay
