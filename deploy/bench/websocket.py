"""A WebSocket client that costs less than any server it measures: zero masks, no extensions, no tasks."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from typing import cast

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
OFFER = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
OPEN_SECONDS = 15


def frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """A client's frame. Its mask is zero, which the RFC allows and which saves the client the work."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65536:
        head = bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0xFF)) + size.to_bytes(8, "big")
    return head + b"\0\0\0\0" + payload


def ignore(_: bytes) -> None:
    pass


class Socket(asyncio.Protocol):
    """`on_text` gets each message. `closed` becomes the close code, or None where the connection just ended."""

    transport: asyncio.Transport

    def __init__(self, host: str, port: int, *, target: str, deflate: bool, headers: str = "") -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[int | None] = loop.create_future()
        self.on_text: Callable[[bytes], None] = ignore
        self._rest = b""
        self._code: int | None = None
        self._request = (
            f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n"
            f"{OFFER if deflate else ''}{headers}\r\n"
        ).encode()

    @property
    def local_port(self) -> int:
        return int(self.transport.get_extra_info("sockname")[1])

    def send(self, payload: bytes) -> None:
        self.transport.write(frame(payload))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        if not self.opened.done():
            at = self._upgrade(data)
            if not at:
                self._rest = data
                return
        while end - at >= 2:
            size, start = data[at + 1] & 127, at + 2
            if size > 125:
                start += 2 if size == 126 else 8
                if end < start:
                    break
                size = int.from_bytes(data[at + 2 : start], "big")
            if end < start + size:
                break
            opcode, at = data[at] & 15, start + size
            if opcode == TEXT:
                self.on_text(data[start:at])
            else:
                self._control(opcode, data[start:at])
        self._rest = data[at:]

    def _upgrade(self, data: bytes) -> int:
        """Where the frames begin; 0 while the answer is not whole."""
        head, found, _ = data.partition(b"\r\n\r\n")
        if not found:
            return 0
        if not head.startswith(b"HTTP/1.1 101 ") or b"permessage-deflate" in head.lower():
            self.opened.set_exception(ConnectionError(head.decode(errors="replace")))
            self.transport.abort()
            return len(data)
        self.opened.set_result(None)
        return len(head) + 4

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self.transport.write(frame(payload, PONG))
        elif opcode == CLOSE:
            self._code = int.from_bytes(payload[:2], "big")
            self.transport.write(frame(payload[:2], CLOSE))
            self.transport.close()
        elif opcode != PONG:
            raise ConnectionError(f"opcode {opcode}: this client reads whole text messages only")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError("closed during the handshake"))
        if not self.closed.done():
            self.closed.set_result(self._code)


async def connect(
    host: str, port: int, *, target: str = "/ws", deflate: bool = False, headers: str = ""
) -> Socket:  # fmt: skip
    """`headers` are whole lines. Raises ConnectionError when refused, and when the server accepts compression: this
    client cannot read it.
    """
    loop = asyncio.get_running_loop()
    _, socket = await loop.create_connection(
        lambda: Socket(host, port, target=target, deflate=deflate, headers=headers), host, port
    )
    async with asyncio.timeout(OPEN_SECONDS):
        await socket.opened
    return socket
