"""The relay on a port, from the first connection to the last."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
import uvloop

from app.bootstrap import open_relay
from app.errors import Misconfigured
from app.main import create_app
from app.server.http import HttpProtocol
from app.server.websocket import WebSocketProtocol
from app.settings import Settings
from app.wire.link import MAX_MESSAGE

PING_SECONDS = 30.0
PONG_SECONDS = 60.0  # a phone on a bad network stalls for 20 s and more, and is still there
KEEP_ALIVE_SECONDS = 150  # longer than proxies keep idle connections (Caddy 120), or they answer with 502
GRACE_SECONDS = 5


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
