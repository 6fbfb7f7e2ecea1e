"""Hermes as the rooms above see it: its state, and the lease of a turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from app.clock import Clock
from app.errors import RelayError
from app.hermes.api import HermesApi
from app.hermes.calls import DEFAULT_PROFILE
from app.hermes.choice import over_api, suits_dashboard
from app.hermes.completions import Completions
from app.hermes.errors import (
    HistoryHidden,
    RouteMissing,
    SessionNotFound,
    UpstreamError,
    UpstreamOff,
)
from app.hermes.lease import CREDENTIAL, MAX_SESSIONS, Lease, RowMarks, session_of
from app.hermes.runs import Runs
from app.hermes.session_stream import SessionStream
from app.hermes.state import differ, fallen, up
from app.hermes.upstream import Json, Order, Upstream
from app.settings import HermesSettings
from app.tasks import Supervisor

log = logging.getLogger("talaria.hermes")

WATCH_S = 30.0
WATCH_DOWN_S = 5.0  # while it is away: the owner is probably starting it
SOON_S = 2.0  # after a failure, before it is looked at again
ELSEWHERE_S = 0.2  # the same where there is another route, which may be used at once


class Dashboard(Upstream, Protocol):
    """The socket of the dashboard: an upstream that is there or not."""

    @property
    def approvals(self) -> tuple[str | None, float]: ...
    @property
    def ready(self) -> bool: ...
    @property
    def failure(self) -> RelayError | None: ...
    @property
    def base(self) -> str: ...
    async def settled(self) -> None: ...
    def state(self) -> dict[str, Any]: ...
    async def messages(self, session_id: str, profile: str | None = None) -> list[Json]: ...
    async def forget(self, session_id: str) -> None: ...


class Hermes:
    """Open it with `async with`: while it is open it watches what is there.

    `changed` is called when `states()` says something new.
    """

    def __init__(
        self, settings: HermesSettings, tasks: Supervisor, dashboard: Dashboard | None = None, *,
        changed: Callable[[], None] = lambda: None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._tasks, self._dashboard, self._changed = tasks, dashboard, changed
        self._ask_approvals = settings.hermes_ask_approvals
        self._failure = asyncio.Event()
        self._state: dict[str, Any] = {"state": "down"}  # until it was looked
        self._watching: asyncio.Task[None] | None = None
        self.api = HermesApi(settings, failed=self._failed, moved=changed, clock=clock)
        self.rows = RowMarks()
        self._elsewhere: dict[str, bool] = {}  # sessions whose last turn ran past the dashboard
        known: list[Upstream] = [SessionStream(self.api), Runs(self.api), Completions(self.api)]
        known += [dashboard] if dashboard is not None else []
        self._upstreams = {one.kind: one for one in known}

    async def __aenter__(self) -> Self:
        if self.api.is_off:
            off = UpstreamOff()
            self._state = {"state": "off", "code": off.code, "message": off.message}
        else:
            self._watching = self._tasks.start(self._watch(), "hermes watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self.api.close()

    def states(self) -> dict[str, Any]:
        """Upstream name → {state: up, down, auth_required or off, version?, route?, code?, message?}.

        `route` is local or remote; the last two say why it is not up, or that its two routes differ.
        """
        api = self._state | (self.api.choice.as_json() if self._state["state"] == "up" else {})
        return {"api": api} | ({} if self._dashboard is None else {"dashboard": self._dashboard.state()})

    def profiles(self) -> list[Json]:
        """Those known by name, as {name, is_default}: its API server serves others, where it does, but lists none."""
        return [{"name": DEFAULT_PROFILE, "is_default": True}] if self._state["state"] == "up" else []

    def approvals(self) -> tuple[str | None, float] | None:
        """(approvals.mode, seconds it waits); None without a dashboard, which alone tells."""
        return None if self._dashboard is None or not self._dashboard.ready else self._dashboard.approvals

    # a turn

    async def choose(self, order: Order) -> Upstream:
        """How a turn is to run now. Raises UpstreamError."""
        if order.passed is not None:
            return self._upstreams["session_stream"]
        if self._dashboard is not None and suits_dashboard(order):
            await self._dashboard.settled()
            if self._dashboard.ready:
                return self._dashboard
            if self.api.is_off and (error := self._dashboard.failure) is not None:
                raise error
        kind = over_api(await self.api.capabilities(), ask_approvals=self._ask_approvals)
        return self._upstreams[kind]

    def upstream(self, kind: str) -> Upstream:
        """That of a lease."""
        return self._upstreams[kind]

    async def lease(self, upstream: Upstream, session_id: str, order: Order) -> Lease:
        """Bind a turn of an existing session, or of the one that it went on in after a compression.

        Raises UpstreamError; nothing of the turn was sent then.
        """
        session_id, last_row, since = await self._bearings(session_id, order.profile)
        if upstream is self._dashboard:
            base, mark = self._dashboard.base, None
            if self._elsewhere.pop(session_id, None):
                await self._dashboard.forget(session_id)
        else:
            mark = await self.api.mark()
            base = self.api.route().fingerprint  # after whatever could have led to another route
            self._went_elsewhere(session_id)
        return await upstream.bind(
            Lease(
                route=upstream.kind, base=base, session_id=session_id, endpoint="", credential=CREDENTIAL,
                drop_interrupts=False, mark=mark, last_row=last_row, since=since, profile=order.profile,
            )
        )  # fmt: skip

    def changed_elsewhere(self, session_id: str) -> None:
        """A client of Hermes' own API did something to it: what is remembered of its rows may not hold."""
        self.rows.forget(session_id)
        self._went_elsewhere(session_id)

    async def messages(self, session_id: str, profile: str | None = None) -> list[Json]:
        """All rows of a session in order; none for one that Hermes has not stored yet, or cannot give.

        After a compression they are those of the session that it went on in.
        """
        board = self._dashboard if self._dashboard is not None and self._dashboard.ready else None
        if board is None or self._state["state"] == "up":
            try:
                return await self.api.messages(session_id, profile)
            except (SessionNotFound, RouteMissing, HistoryHidden):
                return []
            except UpstreamError:
                if board is None:
                    raise
        try:  # at once where the API server is known to be away: a turn would wait until that is found out again
            return await board.messages(session_id, profile)
        except SessionNotFound:
            return []

    async def delete(self, session_id: str, profile: str | None = None) -> None:
        """Also the dashboard's copy in memory, from which the next message would bring it back. Raises as the API's."""
        if self._dashboard is not None:
            await self._dashboard.forget(session_id)
        await self.api.delete_session(session_id, profile)
        self.rows.forget(session_id)

    async def has_result(self, session_id: str, tool_id: str) -> bool:
        """Whether the dashboard shows what this tool of a conversation has come to. Asked there alone: the API server
        may be away while an approval waits on the dashboard. Raises UpstreamError.
        """
        assert self._dashboard is not None
        try:
            rows = await self._dashboard.messages(session_id)
        except (SessionNotFound, RouteMissing):
            return False
        return any(row.get("tool_call_id") == tool_id for row in rows)

    async def _bearings(self, session_id: str, profile: str | None) -> tuple[str, int, tuple[str, ...]]:
        """Where the conversation is now, and what is known of its rows."""
        if (known := self.rows.get(session_id)) is None:
            rows = await self.messages(session_id, profile)
            session_id = session_of(rows) or session_id
            if (known := self.rows.get(session_id)) is None:
                self.rows.read(session_id, rows)
                known = self.rows.get(session_id) or (0, ())
        return session_id, *known

    def _went_elsewhere(self, session_id: str) -> None:
        """The dashboard keeps the conversations it has open in its memory, and would answer from that."""
        self._elsewhere[session_id] = True
        if len(self._elsewhere) > MAX_SESSIONS:
            self._elsewhere.pop(next(iter(self._elsewhere)))

    # watching

    def _failed(self, error: UpstreamError) -> None:
        self._become(fallen(error), error)
        self._failure.set()

    async def _watch(self) -> None:
        while True:
            await self.probe()
            try:
                async with asyncio.timeout(WATCH_S if self._state["state"] == "up" else WATCH_DOWN_S):
                    await self._failure.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(ELSEWHERE_S if self.api.has_choice else SOON_S)

    async def probe(self) -> Mapping[str, Any]:
        """Look now."""
        self._failure.clear()
        try:
            capabilities = await self.api.capabilities(fresh=True)
        except RelayError as exc:
            self._become(fallen(exc), exc)
        else:
            self._become(up(capabilities.version), None)
        self._failure.clear()  # what the probe itself found needs no second one
        return self._state

    def _become(self, state: dict[str, Any], error: RelayError | None) -> None:
        was, self._state = self._state, state
        if not differ(was, state):
            return
        if error is None:
            log.info("hermes is up", extra={"version": state.get("version")})
        else:
            log.warning("hermes is %s", state["state"], extra={"code": error.code, "reason": error.message})
        self._changed()
