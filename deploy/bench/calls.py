"""HTTP that costs less than any server it measures: one kept-alive connection, one request at a time."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self, cast

from deploy.bench.processes import Broken, Server


class Caller(asyncio.Protocol):
    """`async with Caller(server) as caller: await caller.post(…)`, with the server's key as bearer."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._head = f"Host: {server.host}:{server.port}\r\nContent-Type: application/json\r\n" + (
            f"Authorization: Bearer {server.key}\r\n" if server.key else ""
        )
        self._read = b""
        self._answer: asyncio.Future[bytes] | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, self._server.host, self._server.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.transport.abort()

    async def post(self, path: str, body: bytes, headers: str = "") -> bytes:
        """The answer's body; `headers` are whole lines. Raises Broken for anything but success."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(
            f"POST {path} HTTP/1.1\r\n{self._head}{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        return await self._answer

    async def get(self, path: str) -> bytes:
        """As `post`."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode())
        return await self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if not found:
            return
        size = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if len(body) < int(size):
            return
        self._read = b""
        if head.startswith(b"HTTP/1.1 2"):
            self._settle(body)
        else:
            self._settle(Broken(f"the server refused a request: {head.decode()}\n{body.decode()}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle(Broken("the server closed a kept-alive connection"))

    def _settle(self, answer: bytes | Broken) -> None:
        if self._answer is None or self._answer.done():
            return
        if isinstance(answer, bytes):
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(answer)
