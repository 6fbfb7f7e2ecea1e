"""The dashboard as its other modules use it: is it there, and calls to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection

from app.clock import Clock
from app.errors import Misconfigured, RelayError
from app.hermes.dashboard.connection import Connection
from app.hermes.dashboard.credentials import About, Access
from app.hermes.dashboard.rest import MAX_ANSWER, Rest
from app.hermes.dashboard.socket import open_socket
from app.hermes.errors import UpstreamError, UpstreamInsecure, UpstreamInvalid, UpstreamOff, UpstreamUnreachable
from app.hermes.local_first import LocalFirst
from app.hermes.routes import Name, Route, dashboard_routes
from app.hermes.state import differ, fallen, up
from app.hermes.upstream import Json
from app.settings import HermesSettings
from app.tasks import Supervisor

LOOK_S = 30.0  # how often it is looked which route to use, where there are two

log = logging.getLogger("talaria.hermes.dashboard")


class Link:
    """`lost` is called after each loss of the socket; `observe` hears (kind, live id, payload) of every event;
    `changed` is called when `state()` says something new.
    """

    def __init__(
        self, settings: HermesSettings, tasks: Supervisor, *, observe: Callable[[str, str, Json], None],
        lost: Callable[[], None], changed: Callable[[], None], sleep: Callable[[float], Awaitable[None]], clock: Clock,
    ) -> None:  # fmt: skip
        self._settings, self._tasks, self._lost, self._changed = settings, tasks, lost, changed
        self._sleep, self._clock = sleep, clock
        self.connection = Connection(self._connect, became=self._became, observe=observe, sleep=sleep)
        self.approval_s = float(settings.hermes_approval_timeout)
        self.approval_mode: str | None = None  # its approvals.mode, once it was read
        self._tried = asyncio.Event()
        self._choice: LocalFirst[About] | None = None
        self._rests: list[Rest] = []
        self._doors: dict[Name, Access] = {}
        self._route: Route | None = None  # of the socket, the last one if it is lost
        self._running: list[asyncio.Task[None]] = []
        self._state: dict[str, Any] = {"state": "off"}
        self._version: str | None = None
        self.failure: RelayError | None = None

    def open(self) -> None:
        try:
            routes = dashboard_routes(self._settings)
        except (UpstreamInsecure, Misconfigured) as exc:
            self._became(exc)
            return
        if not routes:
            return
        self._state, self.failure = {"state": "down"}, UpstreamUnreachable()
        for route in routes:
            self._rests.append(rest := Rest(route))
            self._doors[route.name] = Access(self._settings, route, rest)
        self._choice = LocalFirst(
            routes, greet=lambda route: self._doors[route.name].about(),
            liken=lambda route: self._doors[route.name].likeness(), changed=self._changed, clock=self._clock,
        )  # fmt: skip
        self._route = routes[0]
        self._running.append(self._tasks.start(self.connection.run(), "dashboard"))
        if self._choice.has_choice:
            self._running.append(self._tasks.start(self._keep_choosing(self._choice), "dashboard routes"))

    @property
    def base(self) -> str:
        """Names the place in a stored lease."""
        return "" if self._route is None else self._route.fingerprint

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        for rest in self._rests:
            await rest.close()

    def state(self) -> dict[str, Any]:
        if self._state["state"] != "up" or self._choice is None or self._route is None:
            return dict(self._state)
        return self._state | self._choice.as_json() | {"route": self._route.name}  # that of the socket

    async def call(self, method: str, params: Json) -> Json:
        """Raises as Connection.call does."""
        answer = await self.connection.call(method, params)
        if not isinstance(answer, dict):
            raise UpstreamInvalid(f"the dashboard answered {method} with no object")
        return answer

    async def get(self, path: str, params: Mapping[str, str] | None = None, limit: int = MAX_ANSWER) -> Json:
        """A JSON object over HTTP. Raises UpstreamError."""
        if self._route is None:
            raise UpstreamOff("the dashboard of Hermes is switched off, or its settings do not let the relay use it")
        return await self._doors[self._route.name].get(path, params, limit)

    async def rows(self) -> list[Json]:
        """Live sessions: {id, session_key, status: idle, starting, working or waiting, …}."""
        rows = (await self.call("session.active_list", {})).get("sessions")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    async def row(self, live_id: str | None) -> Json | None:
        return next((row for row in await self.rows() if row.get("id") == live_id), None)

    async def _connect(self) -> ClientConnection:
        assert self._choice is not None
        if self._choice.has_choice:
            await self._choice.look()
        self._route = self._choice.route
        for name, door in self._doors.items():
            if name != self._route.name:
                door.drop()
        about, socket = await open_socket(self._route, self._doors[self._route.name])
        self._version = about.version
        return socket

    async def _keep_choosing(self, choice: LocalFirst[About]) -> None:
        """Back on the local route when that is healthy again, and no turn is in the way."""
        while True:
            await self._sleep(LOOK_S)
            if not self.connection.is_open:
                continue  # whoever connects chooses
            with suppress(UpstreamError):
                await choice.look()
            if choice.route is not self._route and self.connection.is_idle:
                await self.connection.renew()

    async def settled(self, within_s: float) -> None:
        """Wait until it is known whether the dashboard is there."""
        if self._running:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._tried.wait()

    def _became(self, error: RelayError | None) -> None:
        self._tried.set()
        self.failure = error
        was, self._state = self._state, up(self._version) if error is None else fallen(error)
        if error is None:
            self._tasks.start(self._read_settings(), "dashboard settings")
        else:
            self._lost()
        if not differ(was, self._state):
            return
        if error is None:
            log.info("the dashboard of hermes is up", extra={"version": self._version})
        else:
            about = {"code": error.code, "reason": error.message}
            log.warning("the dashboard of hermes is %s", self._state["state"], extra=about)
        self._changed()

    async def _read_settings(self) -> None:
        try:
            approvals = (await self.get("/api/config")).get("approvals")
        except UpstreamError as exc:
            log.debug("the dashboard's settings were not read", extra={"code": exc.code})
            return
        if not isinstance(approvals, dict):
            return
        if isinstance(mode := approvals.get("mode"), str):
            self.approval_mode = mode
        seconds = approvals.get("timeout")
        if isinstance(seconds, int | float) and seconds > 0:
            self.approval_s = float(seconds)
