"""Just enough HTTP/1.1 to post JSON thousands of times a second from one process."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class Http:
    """One connection, kept alive. Raises OSError when the server is gone; the next call connects anew."""

    def __init__(self, port: int, bearer: str) -> None:
        self._port = port
        self._bearer = bearer
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        data = json.dumps(body).encode()
        lines = [
            f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{self._port}", f"Authorization: Bearer {self._bearer}",
            "Content-Type: application/json", f"Content-Length: {len(data)}",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]  # fmt: skip
        try:
            async with asyncio.timeout(10):
                return await self._exchange("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as exc:
            self.close()
            raise OSError(str(exc)) from exc

    async def _exchange(self, request: bytes) -> tuple[int, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
        answer = json.loads(await reader.readexactly(length) or b"null")
        if "connection: close" in head:
            self.close()
        return int(head.split(" ", 2)[1]), answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
