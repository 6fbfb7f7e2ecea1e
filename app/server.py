"""uvicorn as we need it. Each line here answers something it really does (deploy/decisions/0001)."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import OPEN

from app.bootstrap import open_relay
from app.errors import Misconfigured
from app.main import create_app
from app.settings import Settings
from app.wire import close
from app.wire.link import MAX_BEFORE_AUTH, MAX_MESSAGE

log = logging.getLogger("talaria.server")

PING_SECONDS = 30.0
PONG_SECONDS = 60.0  # a phone on a bad network stalls for 20 s and more, and is still there
KEEP_ALIVE_SECONDS = 150  # longer than proxies keep idle connections (Caddy 120), or they answer with 502
GRACE_SECONDS = 5
LAST_SECONDS = 1.0  # for a peer to read what is still on its way when its connection ends
MAX_HEAD = 64 * 1024  # bytes of the head of a request: what cookies and proxies add is far less
HEAD_SECONDS = 30.0  # for it to arrive; browsers open connections ahead of what they ask
MAX_GATHERED = 64 * 1024  # bytes of frames that are written together; the transport's own high-water mark
MAX_PIECES = 1000  # fragments of a message before they are joined


class HttpProtocol(HttpToolsProtocol):
    """Bounds the head of a request in bytes and in time: the parser takes any, from anyone.

    Puts itself into `scope["extensions"]["talaria"]`, as sockets do; only `api/served.py` and `api/passed.py` look
    there. `when_gone` is called when the client hangs up: ASGI has no word for it but a task that waits.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None  # None while no head is awaited
        self.when_gone: Callable[[], None] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        super().connection_lost(exc)
        if self.when_gone is not None:
            self.when_gone()

    def data_received(self, data: bytes) -> None:
        awaited = self._head_timer is not None
        super().data_received(data)
        if awaited and self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def abort(self) -> None:
        """Drop the connection without waiting for a reader that has stopped."""
        self.transport.abort()

    @property
    def is_gone(self) -> bool:
        return self.transport.is_closing()

    @property
    def is_blocked(self) -> bool:
        """The next `send` waits for a reader."""
        return bool(self.flow.write_paused)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {"talaria": self}  # type: ignore[dict-item]
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._head_has_come()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _head_has_come(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


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


class Server(uvicorn.Server):
    """Tells clients before it closes their sockets, and says when it listens."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], Awaitable[None]], ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain, self._ready = drain, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn closes every socket with 1012 first thing: the drain notice has to come before."""
        await self._drain()
        await super().shutdown(sockets)


def config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws=WebSocketProtocol,
        http=HttpProtocol,
        lifespan="off",  # the relay is opened before the port listens and closed after it
        proxy_headers=False,  # it believes any loopback peer; we read forwarding headers ourselves
        server_header=False,
        log_config=None,
        access_log=False,  # it logs query strings
        ws_per_message_deflate=False,  # 58 KiB an idle socket against 20
        ws_max_size=MAX_MESSAGE,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PONG_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def listen(host: str, port: int) -> socket.socket:
    """Raises Misconfigured when the address cannot be had."""
    # With the protocol named, asyncio sets TCP_NODELAY on what it accepts; else small answers wait 40 ms.
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
        return listener
    except OSError as exc:
        listener.close()
        do = ""
        if exc.errno == errno.EADDRINUSE:
            do = ". Another relay runs, or something else has the port: stop that, or set TALARIA_PORT to another"
        raise Misconfigured(f"cannot listen on {host}:{port}: {exc.strerror}{do}") from exc


async def serve(settings: Settings, on_ready: Callable[[str], None] | None = None) -> None:
    """Until SIGINT or SIGTERM. `on_ready` gets the base URL once requests are answered."""
    listener = listen(settings.server.host, settings.server.port)
    host, port = listener.getsockname()[:2]
    settings = settings.with_port(port)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    try:
        async with open_relay(settings) as relay:
            server = Server(config(create_app(relay)), relay.drain, lambda: on_ready and on_ready(url))
            # What was imported stays: a full collection of it would stop every link for 50 to 100 ms, again and again.
            gc.collect()
            gc.freeze()
            await server.serve(sockets=[listener])
    finally:
        listener.close()


def run(settings: Settings, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve on an event loop of its own. Raises Misconfigured."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, on_ready))
