"""One WebSocket connection of uvicorn's, with the bounds that it lacks, and what ASGI cannot say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import OPEN

from app.wire import close
from app.wire.link import MAX_BEFORE_AUTH

LAST_SECONDS = 1.0  # for a peer to read what is still on its way when its connection ends
MAX_GATHERED = 64 * 1024  # bytes of frames that are written together; the transport's own high-water mark
MAX_PIECES = 1000  # fragments of a message before they are joined


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Puts itself into `scope["extensions"]["talaria"]`; only `api/ws.py` looks there.

    Adds what ASGI cannot say: messages without a task switch each, send without waiting, drop a connection whose
    reader has stopped (it blocks `send` and `close` alike), and small messages only until the client has shown who
    it is.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.raise_limit(MAX_BEFORE_AUTH)
        self._gone: asyncio.Future[None] | None = None
        self._message: Callable[[bytes, bool], None] | None = None
        self._gathers = False  # something was written in this pass of the loop
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0

    @property
    def close_code(self) -> int | None:
        return self.conn.close_rcvd.code if self.conn.close_rcvd is not None else None

    @property
    def exceeded(self) -> bool:
        return self.conn.close_sent is not None and self.conn.close_sent.code == close.TOO_BIG

    def listen(self, message: Callable[[bytes, bool], None]) -> None:
        """Instead of ASGI's receive. What came before, ASGI has queued."""
        self._message = message
        while not self.queue.empty():
            event: Any = self.queue.get_nowait()
            if event["type"] == "websocket.receive":
                text = event.get("text")
                message(event["bytes"] if text is None else text.encode(), text is not None)
        self.resume()

    def send_receive_event_to_app(self) -> None:
        if self._message is None:
            super().send_receive_event_to_app()
            return
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if not self.close_sent:
            self._message(data, self.curr_msg_data_type == "text")

    def pause(self) -> None:
        if not self.read_paused and not self.transport.is_closing():
            self.read_paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope["extensions"]["talaria"] = self  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._gathered.clear()
        super().connection_lost(exc)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    # what it does not bound

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:  # the request comes in one piece: the library refuses it, and nobody says so
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def handle_ping(self) -> None:
        """Who pings and does not read gets no more pongs: they would fill our memory."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_cont(self, event: Any) -> None:
        """The size of a message is bounded, the number of its fragments is not: empty ones cost no size."""
        super().handle_cont(event)
        if len(self.frames) > MAX_PIECES:
            self.frames = [b"".join(self.frames)]

    # how it ends: a transport that closes waits for a stopped reader to take what is in the buffer, for ever

    def eof_received(self) -> None:
        self._let_go()

    def handle_close(self, event: Any) -> None:
        self._flush()
        super().handle_close(event)
        self._let_go()

    def handle_parser_exception(self) -> None:
        self._flush()
        super().handle_parser_exception()
        self._let_go()

    def keepalive_timeout(self) -> None:
        self._flush()
        super().keepalive_timeout()
        self._let_go()

    def _let_go(self) -> None:
        if self.transport.get_write_buffer_size() > 0:
            self.loop.call_later(LAST_SECONDS, self.abort)

    def shutdown(self) -> None:
        """Waits for the answer to 1012: closing over unread frames resets the connection, and the code is lost."""
        self.loop.call_later(LAST_SECONDS, self.abort)
        if not self.handshake_complete:
            super().shutdown()
        elif not self.close_sent and self.conn.state is OPEN:
            self._flush()
            self.stop_keepalive()
            self.conn.send_close(close.RESTARTING)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.close_timer = self.loop.call_later(LAST_SECONDS, self.abort)  # uvicorn closes when the answer comes
            self.resume()

    async def send(self, message: Any) -> None:
        self._flush()
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # a refusal is an answer; it logs an error for each

    def raise_limit(self, max_message: int) -> None:
        self.conn.max_message_size = max_message

    def write(self, payload: bytes) -> bool:
        """One text frame (RFC 6455 §5.2, unmasked); False when the transport is over its high-water mark.

        The first of a pass of the loop goes out at once; what follows it in the same pass, together at its end: each
        write of uvloop's is a system call, and that takes longer than all else that is done for a frame.
        """
        if self.close_sent or self.disconnected or self.conn.state is not OPEN:
            return True
        size = len(payload)
        if size < 126:
            head = bytes((0x81, size))
        elif size < 65536:
            head = b"\x81\x7e" + size.to_bytes(2, "big")
        else:
            head = b"\x81\x7f" + size.to_bytes(8, "big")
        if not self._gathers:
            self._gathers = True
            self.loop.call_soon(self._pass_is_over)
            self.transport.write(head + payload)
        else:
            self._gathered += (head, payload)
            self._gathered_bytes += size
            if self._gathered_bytes >= MAX_GATHERED:
                self._flush()
        return self.writable.is_set()

    def _pass_is_over(self) -> None:
        self._gathers = False
        self._flush()

    def _flush(self) -> None:
        """Before a close frame, which nothing may follow."""
        if self._gathered:
            frames, self._gathered, self._gathered_bytes = b"".join(self._gathered), [], 0
            if not self.transport.is_closing():
                self.transport.write(frames)

    async def drain(self) -> None:
        await self.writable.wait()

    async def wait_gone(self) -> None:
        if not self.disconnected:
            self._gone = self._gone or self.loop.create_future()
            await asyncio.shield(self._gone)

    def abort(self) -> None:
        if not self.disconnected:
            self.transport.abort()
