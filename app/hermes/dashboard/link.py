"""The dashboard as its other modules use it: is it there, and calls to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection

from app.errors import Misconfigured, RelayError
from app.hermes.dashboard.connection import Connection
from app.hermes.dashboard.credentials import Access
from app.hermes.dashboard.rest import MAX_ANSWER, Rest
from app.hermes.dashboard.socket import open_socket
from app.hermes.errors import UpstreamError, UpstreamInsecure, UpstreamInvalid, UpstreamOff, UpstreamUnreachable
from app.hermes.routes import Route, dashboard_route
from app.hermes.state import differ, fallen, up
from app.hermes.upstream import Json
from app.settings import HermesSettings
from app.tasks import Supervisor

log = logging.getLogger("talaria.hermes.dashboard")


class Link:
    """`lost` is called after each loss of the socket; `observe` hears (kind, live id, payload) of every event;
    `changed` is called when `state()` says something new.
    """

    def __init__(
        self, settings: HermesSettings, tasks: Supervisor, *, observe: Callable[[str, str, Json], None],
        lost: Callable[[], None], changed: Callable[[], None], sleep: Callable[[float], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._settings, self._tasks, self._lost, self._changed = settings, tasks, lost, changed
        self.connection = Connection(self._connect, became=self._became, observe=observe, sleep=sleep)
        self.approval_s = float(settings.hermes_approval_timeout)
        self._tried = asyncio.Event()
        self._route: Route | None = None
        self._rest: Rest | None = None
        self._access: Access | None = None
        self._running: asyncio.Task[None] | None = None
        self._state: dict[str, Any] = {"state": "off"}
        self._version: str | None = None
        self.failure: RelayError | None = None

    def open(self) -> None:
        try:
            self._route = dashboard_route(self._settings)
        except (UpstreamInsecure, Misconfigured) as exc:
            self._became(exc)
            return
        if self._route is not None:
            self._state, self.failure = {"state": "down"}, UpstreamUnreachable()
            self._rest = Rest(self._route)
            self._access = Access(self._settings, self._route, self._rest)
            self._running = self._tasks.start(self.connection.run(), "dashboard")

    @property
    def base(self) -> str:
        """Names the place in a stored lease."""
        return "" if self._route is None else self._route.fingerprint

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._rest is not None:
            await self._rest.close()

    def state(self) -> dict[str, Any]:
        return dict(self._state)

    async def call(self, method: str, params: Json) -> Json:
        """Raises as Connection.call does."""
        answer = await self.connection.call(method, params)
        if not isinstance(answer, dict):
            raise UpstreamInvalid(f"the dashboard answered {method} with no object")
        return answer

    async def get(self, path: str, params: Mapping[str, str] | None = None, limit: int = MAX_ANSWER) -> Json:
        """A JSON object over HTTP. Raises UpstreamError."""
        if self._access is None:
            raise UpstreamOff("the dashboard of Hermes is switched off, or its settings do not let the relay use it")
        return await self._access.get(path, params, limit)

    async def rows(self) -> list[Json]:
        """Live sessions: {id, session_key, status: idle, starting, working or waiting, …}."""
        rows = (await self.call("session.active_list", {})).get("sessions")
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    async def row(self, live_id: str | None) -> Json | None:
        return next((row for row in await self.rows() if row.get("id") == live_id), None)

    async def _connect(self) -> ClientConnection:
        assert self._route is not None
        assert self._access is not None
        about, socket = await open_socket(self._route, self._access)
        self._version = about.version
        return socket

    async def settled(self, within_s: float) -> None:
        """Wait until it is known whether the dashboard is there."""
        if self._running is not None:
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
        seconds = approvals.get("timeout") if isinstance(approvals, dict) else None
        if isinstance(seconds, int | float) and seconds > 0:
            self.approval_s = float(seconds)
