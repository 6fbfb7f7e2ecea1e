"""Hermes as the rooms above see it: its state, and the lease of a turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from app.errors import RelayError
from app.hermes.api import HermesApi
from app.hermes.errors import SessionNotFound, UpstreamAuthRequired, UpstreamError
from app.hermes.lease import Lease, ProcessMark, RowMarks
from app.hermes.session_stream import SessionStream
from app.hermes.upstream import Json, Order, Upstream
from app.settings import HermesSettings
from app.tasks import Supervisor

log = logging.getLogger("talaria.hermes")

WATCH_S = 30.0
WATCH_DOWN_S = 5.0  # while it is away: the owner is probably starting it
SOON_S = 2.0  # after a failure, before it is looked at again
CREDENTIAL = 1  # there is one key, from the settings; it does not change while the relay runs


class Hermes:
    """Open it with `async with`: while it is open it watches what is there."""

    def __init__(self, settings: HermesSettings, tasks: Supervisor) -> None:
        self._tasks = tasks
        self._failure = asyncio.Event()
        self._state = {"state": "down"}
        self._logged = ""
        self._watching: asyncio.Task[None] | None = None
        self.api = HermesApi(settings, failed=self._failed)
        self.rows = RowMarks()
        self._upstreams: dict[str, Upstream] = {one.kind: one for one in (SessionStream(self.api),)}

    async def __aenter__(self) -> Self:
        if self.api.is_off:
            self._state = {"state": "off"}
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
        """Upstream name → {state: up, down, auth_required or off, version?}."""
        return {"api": dict(self._state)}

    # a turn

    async def choose(self, order: Order) -> Upstream:
        """How a turn is to run now."""
        return self._upstreams["session_stream"]

    def upstream(self, kind: str) -> Upstream:
        """That of a lease."""
        return self._upstreams[kind]

    async def lease(self, upstream: Upstream, session_id: str, order: Order) -> Lease:
        """Bind a turn of an existing session. Raises UpstreamError; nothing of the turn was sent then."""
        mark, (last_row, since) = await self._bearings(session_id, order.profile)
        return await upstream.bind(
            Lease(
                route=upstream.kind, base=self.api.route().fingerprint, session_id=session_id, endpoint="",
                credential=CREDENTIAL, drop_interrupts=False, mark=mark, last_row=last_row, since=since,
                profile=order.profile,
            )
        )  # fmt: skip

    async def messages(self, session_id: str, profile: str | None = None) -> list[Json]:
        """All rows of a session in order; none for one that Hermes has not stored yet."""
        try:
            return await self.api.messages(session_id, profile)
        except SessionNotFound:
            return []

    async def _bearings(
        self, session_id: str, profile: str | None
    ) -> tuple[ProcessMark | None, tuple[int, tuple[str, ...]]]:
        if (known := self.rows.get(session_id)) is not None:
            return await self.api.mark(), known
        mark, rows = await asyncio.gather(self.api.mark(), self.api.messages(session_id, profile))
        self.rows.read(session_id, rows)
        return mark, self.rows.get(session_id) or (0, ())

    # watching

    def _failed(self, error: UpstreamError) -> None:
        self._become("auth_required" if isinstance(error, UpstreamAuthRequired) else "down", None, error)
        self._failure.set()

    async def _watch(self) -> None:
        while True:
            await self.probe()
            try:
                async with asyncio.timeout(WATCH_S if self._state["state"] == "up" else WATCH_DOWN_S):
                    await self._failure.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(SOON_S)

    async def probe(self) -> Mapping[str, str]:
        """Look now."""
        self._failure.clear()
        try:
            capabilities = await self.api.capabilities(fresh=True)
        except RelayError as exc:
            self._become("auth_required" if isinstance(exc, UpstreamAuthRequired) else "down", None, exc)
        else:
            self._become("up", capabilities.version, None)
        self._failure.clear()  # what the probe itself found needs no second one
        return self._state

    def _become(self, state: str, version: str | None, error: RelayError | None) -> None:
        self._state = {"state": state} | ({"version": version} if version else {})
        if state == self._logged:
            return
        self._logged = state
        if error is None:
            log.info("hermes is up", extra={"version": version})
        else:
            log.warning("hermes is %s", state, extra={"code": error.code, "reason": error.message})
