"""The real relay on a real server in the test's own loop, on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.bootstrap import Relay, open_relay
from app.clock import Clock
from app.gateway.limits import Limits
from app.main import create_app
from app.server.serving import Server, config, listen
from app.sessions.operator import OperatorToken
from app.settings import Settings, load_settings
from tests.phone import Phone, authenticate, open_socket


@dataclass(slots=True)
class RunningRelay:
    """`relay` is the open relay itself: to look at and to pull levers, not to go round the wire."""

    url: str
    relay: Relay
    server: Server
    stack: AsyncExitStack

    async def connect(self, path: str = "/ws", **fields: Any) -> Phone:
        """A socket that lasts as long as the relay. Without a credential it pairs as a new device."""
        if not {"session_token", "pairing_code"} & fields.keys():
            fields["pairing_code"] = (await self.relay.pairing.mint()).code
        return await authenticate(await self.open(path), **fields)

    async def open(self, path: str = "/ws", **options: Any) -> Phone:
        """A socket that has said nothing yet."""
        return await self.stack.enter_async_context(open_socket(self.url, path, **options))

    def operator(self) -> dict[str, str]:
        """Headers of a request by the operator."""
        return {"Authorization": f"Bearer {OperatorToken.load(self.relay.settings.server.data_dir).read()}"}


def settings_for(data_dir: Path, **environ: str) -> Settings:
    values = {"DATA_DIR": str(data_dir), "PORT": "0", "HERMES_API_URL": "", "HERMES_DASHBOARD_URL": ""} | environ
    return load_settings({f"TALARIA_{name}": value for name, value in values.items()}, dotenv=data_dir / "no.env")


@asynccontextmanager
async def running(
    settings: Settings, *, clock: Clock | None = None, limits: Limits | None = None,
    tune: Callable[[Any], None] = lambda _: None,
) -> AsyncIterator[RunningRelay]:  # fmt: skip
    """`tune` may change the uvicorn config. Ends as SIGTERM does: drain, 1012, close."""
    listener = listen(settings.server.host, settings.server.port)
    port = listener.getsockname()[1]
    async with open_relay(settings.with_port(port), clock=clock, limits=limits) as relay, AsyncExitStack() as stack:
        listening = asyncio.Event()
        chosen = config(create_app(relay))
        tune(chosen)
        server = Server(chosen, relay.drain, listening.set)
        serving = relay.tasks.start(server._serve([listener]), "server")
        await listening.wait()
        try:
            yield RunningRelay(f"http://127.0.0.1:{port}", relay, server, stack)
        finally:
            await stack.aclose()
            server.should_exit = True
            await serving
