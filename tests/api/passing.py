"""A relay in front of something that plays Hermes' API server, and a client of that API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.demo.stand_in import StandIn, serve_stand_in
from tests.api.conftest import client_of
from tests.hermes_client.canned import answer
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for

KEY = "hermes-key-0123456789"
GREETING = answer("200 OK", b'{"status": "ok", "platform": "hermes-agent"}', "Connection: close")
Handle = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Passed:
    """`http` is a client of Hermes' API that knows the relay's address and the token of `phone`."""

    relay: RunningRelay
    phone: Phone
    http: httpx.AsyncClient


@asynccontextmanager
async def passing(url: str, data_dir: Path, **environ: str) -> AsyncIterator[Passed]:
    settings = settings_for(data_dir, HERMES_API_URL=url, HERMES_API_KEY=KEY, **environ)
    async with running(settings) as relay:
        phone = await relay.connect()
        async with client_of(relay, headers={"Authorization": f"Bearer {phone.token}"}) as http:
            yield Passed(relay, phone, http)


async def let_alone(passed: Passed) -> None:
    """Hermes has been found; from here on it hears only what is passed on."""
    hermes = passed.relay.relay.hermes
    assert (await hermes.probe())["state"] == "up"
    assert hermes._watching is not None
    hermes._watching.cancel()


@asynccontextmanager
async def before_played(handle: Handle, data_dir: Path) -> AsyncIterator[Passed]:
    """Hermes greets as it does, and is otherwise played by `handle`, which gets the head of a request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith((b"GET /health", b"GET /v1/capabilities")):
                writer.write(GREETING)
            else:
                await handle(head, reader, writer)
            await writer.drain()
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with passing(f"http://127.0.0.1:{port}", data_dir) as passed:
            await let_alone(passed)
            yield passed


@asynccontextmanager
async def over_stand_in(data_dir: Path, **options: Any) -> AsyncIterator[tuple[Passed, StandIn]]:
    async with (
        serve_stand_in(KEY, delay_s=0.001, **options) as hermes,
        passing(hermes.url, data_dir) as passed,
    ):
        yield passed, hermes
