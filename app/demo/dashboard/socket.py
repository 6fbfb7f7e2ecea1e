"""One client of the dashboard's WebSocket, written to without waiting for it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState


class Droppable(WebSocketsSansIOProtocol):
    """Lets the app write frames without a wait for each, and drop the connection: ASGI has no word for either."""

    async def run_asgi(self) -> None:
        self.scope["extensions"]["stand_in"] = {"protocol": self}
        await super().run_asgi()


class Socket:
    """What is sent within one pass of the loop goes out in one write. `room` waits for a reader that is behind."""

    def __init__(self, protocol: Droppable) -> None:
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._flushes = False

    def send(self, frame: bytes) -> None:
        """One text frame. To a connection that is gone it goes nowhere."""
        if self._protocol.disconnected:
            return
        try:
            self._protocol.conn.send_text(frame)
        except InvalidState:
            return
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush)

    def send_json(self, message: dict[str, Any]) -> None:
        self.send(orjson.dumps(message))

    def hang_up(self) -> None:
        """Send what was written, then drop the connection without a close frame."""
        self._flush()
        self._protocol.transport.close()

    async def room(self) -> None:
        """Wait until the reader has taken most of what was sent; always lets others run."""
        await asyncio.sleep(0)
        await self._protocol.writable.wait()

    def _flush(self) -> None:
        self._flushes = False
        if not self._protocol.transport.is_closing():
            self._protocol.transport.write(b"".join(self._protocol.conn.data_to_send()))
