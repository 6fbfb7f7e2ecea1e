"""A dashboard of Hermes that does what a test says: its doors as 0.19.0 has them, its answers and events scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.clock import Clock
from app.errors import RelayError
from app.hermes.dashboard.dashboard import Dashboard
from app.hermes.lease import Lease
from app.hermes.upstream import Event
from app.settings import HermesSettings
from app.tasks import Supervisor
from tests.servers import serving

T = TypeVar("T")

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "dashboard_turns.json").read_text())
TOKEN = "dashboard-token-0123"
USERNAME, PASSWORD = "admin", "a-password-0123"
NEVER_S = 10  # a wait that ends only in a failing test


class Refusal(Exception):
    def __init__(self, code: int, message: str = "no") -> None:
        self.error = {"code": code, "message": message}


class Silence(Exception):
    """The call gets no answer."""


class FakeDashboard:
    def __init__(self) -> None:
        self.port = 0
        self.gated = False
        self.token = TOKEN
        self.page: str | None = None
        self.socket_refused = False
        self.denial: Response | None = None  # what the socket's upgrade gets instead
        self.ready: Any = {"jsonrpc": "2.0", "method": "event", "params": {"type": "gateway.ready", "payload": {}}}
        self.config: dict[str, Any] = {"approvals": {"timeout": 45}}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.stored: list[str] = ["stored1"]
        self.password = PASSWORD
        self.login: Callable[[], Response] | None = None
        self.cookies: set[str] = set()
        self.tickets: set[str] = set()
        self.counted: dict[str, int] = {}
        self.requests: list[Request] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.sockets: list[WebSocket] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.live: list[dict[str, Any]] = []  # rows of session.active_list
        self._changed = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/", self._index), Route("/api/status", self._status), Route("/api/config", self._config),
                Route("/api/sessions", self._list), Route("/api/sessions/{id}/messages", self._messages),
                Route("/auth/password-login", self._login, methods=["POST"]),
                Route("/api/auth/ws-ticket", self._ticket, methods=["POST"]),
                Route("/elsewhere", self._index, methods=["GET", "POST"]), WebSocketRoute("/api/ws", self._socket),
            ]
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # what a test does

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(NEVER_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def called(self, method: str, times: int = 1) -> dict[str, Any]:
        """The parameters of that call."""
        await self.until(lambda: [name for name, _ in self.calls].count(method) >= times)
        return [params for name, params in self.calls if name == method][times - 1]

    async def event(self, kind: str, live_id: str = "live1", **payload: Any) -> None:
        await self.send({"type": kind, "session_id": live_id, "payload": payload})

    async def send(self, params: dict[str, Any]) -> None:
        await self.sockets[-1].send_text(json.dumps({"jsonrpc": "2.0", "method": "event", "params": params}))

    async def play(self, name: str, live_id: str = "live1") -> None:
        """Every event of a recorded turn."""
        for frame in RECORDED[name]["frames"]:
            await self.send(frame | {"session_id": live_id})

    async def drop(self) -> None:
        await self.sockets[-1].close(1011)

    # what it is

    def _count(self, what: str) -> None:
        self.counted[what] = self.counted.get(what, 0) + 1
        self._changed.set()

    def _let_in(self, request: Request) -> bool:
        self.requests.append(request)
        if self.gated:
            return any(cookie in request.headers.get("cookie", "") for cookie in self.cookies)
        return request.headers.get("x-hermes-session-token") == self.token

    async def _index(self, request: Request) -> Response:
        self._count(request.url.path)
        script = f'<script>window.__HERMES_SESSION_TOKEN__="{self.token}";</script>' if not self.gated else ""
        return HTMLResponse(script if self.page is None else self.page)

    async def _status(self, request: Request) -> Response:
        return JSONResponse({"version": "0.19.0", "auth_required": self.gated})

    async def _config(self, request: Request) -> Response:
        self._count("config")
        return JSONResponse(self.config) if self._let_in(request) else _unauthorized()

    async def _list(self, request: Request) -> Response:
        rows = [{"id": id} for id in self.stored]
        return JSONResponse({"sessions": rows}) if self._let_in(request) else _unauthorized()

    async def _messages(self, request: Request) -> Response:
        if not self._let_in(request):
            return _unauthorized()
        if (rows := self.rows.get(request.path_params["id"])) is None:
            return JSONResponse({"detail": "Session not found"}, 404)
        return JSONResponse({"session_id": request.path_params["id"], "messages": rows})

    async def _login(self, request: Request) -> Response:
        self._count("login")
        if self.login is not None:
            return self.login()
        said = await request.json()
        if said != {"provider": "basic", "username": USERNAME, "password": self.password}:
            return JSONResponse({"detail": "Invalid credentials"}, 401)
        cookie = f'hermes_session_at="ab{self.counted["login"]}="'
        self.cookies.add(cookie)
        answer = JSONResponse({"ok": True, "next": "/"})
        for line in (cookie, "hermes_session_rt=cd", "other=1"):
            answer.headers.append("set-cookie", f"{line}; HttpOnly; Path=/; SameSite=lax")
        return answer

    async def _ticket(self, request: Request) -> Response:
        if not self._let_in(request):
            return _unauthorized()
        self._count("ticket")
        self.tickets.add(ticket := f"ticket-{self.counted['ticket']}")
        return JSONResponse({"ticket": ticket, "ttl_seconds": 30})

    async def _socket(self, socket: WebSocket) -> None:
        ticket, token = socket.query_params.get("ticket", ""), socket.query_params.get("token", "")
        opens = ticket in self.tickets if self.gated else token == self.token
        self.tickets.discard(ticket)
        if self.denial is not None:
            await socket.send_denial_response(self.denial)
            return
        if not opens or self.socket_refused:
            await socket.close(4401)
            return
        await socket.accept()
        if self.ready is not None:
            await socket.send_text(json.dumps(self.ready))
        self.sockets.append(socket)
        self._changed.set()
        try:
            while True:
                await self._answer(socket, json.loads(await socket.receive_text()))
        except WebSocketDisconnect:
            pass

    async def _answer(self, socket: WebSocket, request: dict[str, Any]) -> None:
        method, params = request["method"], request["params"]
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            if method in self.answers:
                answer["result"] = self.answers[method](params)
            elif method == "session.active_list":
                answer["result"] = {"sessions": self.live}
            elif method == "prompt.submit":
                answer["result"] = {"status": "streaming"}
            else:
                raise Refusal(-32601, f"unknown method: {method}")
        except Refusal as refusal:
            answer["error"] = refusal.error
        except Silence:
            answer = {}
        if answer:
            await socket.send_text(json.dumps(answer))
        self.calls.append((method, params))
        self._changed.set()


def _unauthorized() -> Response:
    return JSONResponse({"detail": "Unauthorized"}, 401)


def redirect() -> Response:
    return RedirectResponse("/elsewhere", 307)


def soon(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begun in the background, and not waited for without end."""

    async def bounded() -> T:
        async with asyncio.timeout(NEVER_S):
            return await work

    return asyncio.ensure_future(bounded())


class Waits:
    """The `sleep` of what is tested: each wait lasts until the test ends it."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._open: list[tuple[float, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        wait = seconds, asyncio.get_running_loop().create_future()
        self.asked.append(seconds)
        self._open.append(wait)
        self._changed.set()
        try:
            await wait[1]
        finally:
            self._open.remove(wait)

    async def begun(self, seconds: float, times: int) -> None:
        """Until it has waited so long for that many times."""
        async with asyncio.timeout(NEVER_S):
            while self.asked.count(seconds) < times:
                self._changed.clear()
                await self._changed.wait()

    async def over(self, seconds: float, within: float = 0.001) -> None:
        """End the wait of about that length, when it has begun."""
        async with asyncio.timeout(NEVER_S):
            while True:
                for asked, future in self._open:
                    if abs(asked - seconds) <= within and not future.done():
                        future.set_result(None)
                        return
                self._changed.clear()
                await self._changed.wait()


class Heard:
    """A hearer that remembers."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        self.run_ids: list[str | None] = []
        self.texts: list[str] = []
        self.asked = 0
        self.found = False
        self._changed = asyncio.Event()

    def events(self, events: Any) -> None:
        self.all += events
        self._changed.set()

    def accepted(self, run_id: str | None = None) -> None:
        self.run_ids.append(run_id)
        self._changed.set()

    def restated(self, text: str) -> None:
        self.texts.append(text)

    async def silent(self) -> bool:
        self.asked += 1
        self._changed.set()
        return self.found

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(NEVER_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.all]

    @property
    def text(self) -> str:
        return "".join(body["delta"] for name, body in self.all if name == "assistant.delta" and body)

    def body(self, name: str) -> dict[str, Any]:
        return next(body for found, body in self.all if found == name and body is not None)


@asynccontextmanager
async def faked() -> AsyncIterator[FakeDashboard]:
    fake = FakeDashboard()
    async with serving(fake.app) as port:
        fake.port = port
        yield fake


@asynccontextmanager
async def opened(
    fake: FakeDashboard, *, sleep: Any = None, titled: Any = None, ready: bool = True, clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[Dashboard]:  # fmt: skip
    chosen = HermesSettings(**{"hermes_dashboard_url": fake.url} | settings)
    sleep = sleep or Waits()
    async with (
        Supervisor() as tasks,
        Dashboard(chosen, tasks, titled=titled or (lambda *_: None), sleep=sleep, clock=clock) as dashboard,
    ):
        if ready:
            await is_ready(dashboard)
        yield dashboard


async def is_ready(dashboard: Dashboard, state: str = "up") -> None:
    """Waits until it is in that state."""
    connection, changed = dashboard._link.connection, asyncio.Event()
    became = connection._became

    def heard(error: RelayError | None) -> None:
        became(error)
        changed.set()

    connection._became = heard
    try:
        async with asyncio.timeout(NEVER_S):
            while dashboard.state()["state"] != state:
                changed.clear()
                await changed.wait()
    finally:
        connection._became = became


def lease(session_id: str = "stored1", run_id: str | None = None) -> Lease:
    return Lease(
        route="dashboard", base="", session_id=session_id, endpoint="", credential=1, drop_interrupts=False, mark=None,
        last_row=0, since=(), run_id=run_id,
    )  # fmt: skip
