"""The libraries' own loggers, made as talkative as they can be, around real connections that carry secrets."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from websockets.asyncio.client import connect

from .conftest import configured

SECRET = "hunter2-Zq81"
QUERY = f"token={SECRET}&a=1"
HEADERS = {"Authorization": f"Bearer {SECRET}", "Cookie": f"sid={SECRET}", "X-Hermes-Session-Token": SECRET}
LOUD = ("httpx", "httpcore", "websockets", "websockets.client", "websockets.server", "uvicorn", "uvicorn.error")

Message = MutableMapping[str, Any]


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept", "headers": [(b"set-cookie", f"sid={SECRET}".encode())]})
        await send({"type": "websocket.send", "text": f'{{"payload": {{"session_token": "{SECRET}"}}}}'})
        await send({"type": "websocket.close"})
    else:
        raise RuntimeError(f"could not serve {scope['query_string']!r} with {scope['headers']!r}")


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    config = uvicorn.Config(
        app, port=0, log_config=None, log_level="trace", lifespan="off", ws="websockets-sansio", access_log=True
    )
    server = Server(config)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve())
        await server.ready.wait()
        yield server.servers[0].sockets[0].getsockname()[1]
        server.should_exit = True
        await serving


async def test_real_connections_leave_no_secret() -> None:
    with configured("text", "debug") as output:
        async with serving() as port:
            for name in LOUD:
                logging.getLogger(name).setLevel(logging.DEBUG)
            async with httpx.AsyncClient() as client:
                answer = await client.get(f"http://me:{SECRET}@127.0.0.1:{port}/x?{QUERY}", headers=HEADERS)
                assert answer.status_code == 500
            async with connect(f"ws://127.0.0.1:{port}/ws?{QUERY}", additional_headers=HEADERS) as link:
                assert SECRET in str(await link.recv())
    for logger in ("[httpx]", "[httpcore.http11]", "[websockets.client]", "[uvicorn.error]"):
        assert logger in output.text
    assert "could not serve" in output.text
    assert SECRET not in output.text


async def test_a_refused_upstream_is_told_without_its_credentials() -> None:
    with configured("json") as output:
        async with httpx.AsyncClient(headers=HEADERS) as client:
            try:
                await client.get(f"http://me:{SECRET}@127.0.0.1:1/x?{QUERY}")
            except httpx.ConnectError as exc:
                logging.getLogger("talaria.hermes").error("upstream %s", exc.request.url, exc_info=exc)
                logging.getLogger("talaria.hermes").error("upstream", extra={"headers": exc.request.headers})
                logging.getLogger("talaria.hermes").error("upstream", extra={"headers": exc.request.headers.raw})
    assert len(output.records) == 3
    assert SECRET not in output.text
