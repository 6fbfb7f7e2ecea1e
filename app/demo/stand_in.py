"""A stand-in for hermes-agent 0.19, API server and dashboard: the apps, and a way to run them in the current loop."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.demo import about, completions, runs_routes
from app.demo.agent import Agent
from app.demo.dashboard.app import create_dashboard
from app.demo.dashboard.registry import Dashboard
from app.demo.dashboard.socket import Droppable
from app.demo.refusal import Refusal
from app.demo.requests import refuse
from app.demo.routes import public, router
from app.demo.runs import Runs
from app.tasks import Supervisor

STOP_WITHIN = 5  # seconds


def create_stand_in(
    api_key: str, *, agent: Agent | None = None, capabilities: Mapping[str, Any] | None = None
) -> FastAPI:
    """The ASGI app. Its agent, `app.state.agent`, runs turns for as long as the lifespan lasts.

    `capabilities` is another document than its own, such as that of a newer version: it is shown, and obeyed.
    """
    agent = agent or Agent()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with agent.running():
            yield

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.agent = agent
    app.state.api_key = api_key
    app.include_router(public)
    app.state.capabilities = capabilities or about.capabilities()
    app.state.runs = Runs()
    app.include_router(router)
    app.include_router(runs_routes.router)
    app.include_router(completions.router)
    app.add_middleware(Gatehouse)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _unknown_route)
    return app


class Gatehouse:
    """What the real server does before it looks at the route: no browser gets in, profiles are ignored."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["method"] == "OPTIONS" or any(name == b"origin" for name, _ in scope["headers"]):
                await Response(status_code=403)(scope, receive, send)
                return
            if scope["path"].startswith("/p/"):
                scope["path"] = "/" + scope["path"].partition("/p/")[2].partition("/")[2]
        await self._app(scope, receive, send)


async def _refused(_: Request, exc: Exception) -> Response:
    return refuse(cast(Refusal, exc))


async def _unknown_route(_: Request, exc: Exception) -> Response:
    """404 and 405 are plain text, as aiohttp words them."""
    error = cast(HTTPException, exc)
    return PlainTextResponse(f"{error.status_code}: {error.detail}", error.status_code, error.headers)


@dataclass(frozen=True, slots=True)
class StandIn:
    """A stand-in that listens: the API server at `url` with its key, the dashboard with its token."""

    url: str
    key: str
    agent: Agent
    dashboard_url: str
    dashboard_token: str
    dashboard: Dashboard


@asynccontextmanager
async def serve_stand_in(
    key: str,
    port: int = 0,
    *,
    delay_s: float = 0.025,
    approval_timeout_s: float = 60,
    agent: Agent | None = None,
    host: str = "127.0.0.1",
    dashboard_port: int = 0,
    dashboard_token: str = "",
    capabilities: Mapping[str, Any] | None = None,
) -> AsyncIterator[StandIn]:
    """Listen until the block ends. Port 0 takes a free one; the times, in seconds, go to a new agent only.

    Leaving stops as Hermes does at SIGTERM: open streams end with `done` and no turn is completed. The same
    agent may be served again, on the same ports. Without a token the dashboard makes one. Raises OSError if a
    port is taken.
    """
    agent = agent or Agent(delay_s=delay_s, approval_timeout_s=approval_timeout_s)
    dashboard = Dashboard(agent, dashboard_token or secrets.token_urlsafe(24))
    apps = create_stand_in(key, agent=agent, capabilities=capabilities), create_dashboard(dashboard)
    with _listen(host, port) as api, _listen(host, dashboard_port) as board:
        servers = [_Server(_config(app)) for app in apps]
        async with Supervisor() as tasks:
            serving = [
                tasks.start(server.serve(sockets=[listener]), "stand-in server")
                for server, listener in zip(servers, (api, board), strict=True)
            ]
            for server in servers:
                await server.up.wait()
            try:
                yield StandIn(_url(host, api), key, agent, _url(host, board), dashboard.token, dashboard)
            finally:
                await agent.stop_turns()
                for server in servers:
                    server.down.set()
                await asyncio.wait(serving)


def _config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Droppable,
        ws=Droppable,
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_WITHIN,
    )


def _url(host: str, listener: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def _listen(host: str, port: int) -> socket.socket:
    """The protocol is named because asyncio sets TCP_NODELAY only then; without, a small answer can take 40 ms."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """Is told to stop, and takes no signals: it shares its process with others."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self.down = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        await super().startup(sockets=list(sockets or ()))
        self.up.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.down.wait()


class _Droppable(HttpToolsProtocol):
    """Lets the app drop a connection in the middle of an answer, which ASGI has no word for."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {"stand_in": {"hang_up": self.transport.close}}
