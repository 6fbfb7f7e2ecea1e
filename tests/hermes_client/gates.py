"""A way to a server that a test can cut: the same Hermes by another address, with TLS or without."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from app.hermes import routes
from tests.servers import Authority


class Gate:
    """Passes bytes on to `target`. `heads` are the requests that came through, without their bodies."""

    def __init__(self, target: int, tls: ssl.SSLContext | None) -> None:
        self.target = target
        self.port = 0
        self.received = bytearray()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._served: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}" if self._tls else f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[str]:
        lines = self.received.decode("latin-1").split("\r\n")
        return [line.removesuffix(" HTTP/1.1") for line in lines if line.endswith(" HTTP/1.1")]

    def asked_without_key(self) -> set[str]:
        heads = self.received.decode("latin-1").split(" HTTP/1.1\r\n")
        asked = [head.rpartition("\r\n")[2] or head for head in heads]
        return {line for line, head in zip(asked, heads[1:], strict=False) if "authorization:" not in head.lower()}

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        """Nothing gets through, and what was on its way is cut off."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        if self._served:
            await asyncio.wait(self._served)
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        ends = {writer, back}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, back, heard=True))
                both.create_task(self._pass(there, writer, heard=False))
        finally:
            self._writers -= ends

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, heard: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if heard:
                    self.received += data
                writer.write(data)
                await writer.drain()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def gate(url: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Gate]:
    """An open gate to what listens at this URL, on loopback."""
    made = Gate(int(url.rpartition(":")[2]), tls)
    await made.open()
    try:
        yield made
    finally:
        await made.shut()


def tls(authority: Authority) -> ssl.SSLContext:
    """For a server that is `localhost`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("localhost"))
    return context


@contextmanager
def trusted(home: Path) -> Iterator[Authority]:
    """An authority that this host trusts, as its owner sets one of his own."""
    authority = Authority(home)
    certificate = home / "authority.pem"
    certificate.write_text(authority.pem())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        routes.trust.cache_clear()
        yield authority
    routes.trust.cache_clear()
