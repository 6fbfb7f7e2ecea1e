"""Conversations that Hermes has in its memory: taken up, looked after, and closed."""

from __future__ import annotations

import logging
from typing import Any, TypeGuard

from app.hermes.api import MAX_ID
from app.hermes.dashboard.events import Usage
from app.hermes.dashboard.link import Link
from app.hermes.dashboard.lives import Live, Lives
from app.hermes.errors import SessionNotFound, UpstreamError, UpstreamInvalid
from app.hermes.upstream import Json, Order
from app.tasks import Supervisor

log = logging.getLogger("talaria.hermes.dashboard")

COLS = 80  # of the terminal for which Hermes draws its `rendered` text, which nobody here reads
MAX_ELSEWHERE = 1000  # conversations whose copy in Hermes' memory is to be closed; beyond it the oldest is left alone
BUSY = frozenset({"working", "waiting", "starting"})


class Sessions:
    """Every call raises UpstreamError."""

    def __init__(self, link: Link, tasks: Supervisor) -> None:
        self._link, self._tasks = link, tasks
        self._elsewhere: dict[str, None] = {}  # conversations that went on over another upstream, the oldest first
        self.lives = Lives()

    async def create(self, order: Order) -> Json:
        """{id, model?}."""
        wanted = given(model=order.model, profile=order.profile)
        answer = await self._link.call("session.create", {"cols": COLS} | wanted)
        live, info = self._take_up(answer, "stored_session_id"), answer.get("info")
        model = info.get("model") if isinstance(info, dict) else None
        return {"id": live.key} | ({"model": model} if isinstance(model, str) and model else {})

    async def take_up(self, session_id: str, profile: str | None) -> Live:
        """Raises SessionNotFound."""
        if session_id in self._elsewhere:
            await self._close_copies(session_id)
        if (live := self.lives.of(session_id)) is not None:
            return live
        try:
            answer = await self.resume(session_id, profile)
        except SessionNotFound:
            # One that has had no message yet is not stored, but may be live.
            row = next((row for row in await self._link.rows() if row.get("session_key") == session_id), None)
            if row is None or not isinstance(id := row.get("id"), str):
                raise
            return self.lives.add(id, session_id)
        return self._take_up(answer, "session_key")

    async def resume(self, session_id: str, profile: str | None) -> Json:
        """Hermes sends the events of the session to this socket from now on."""
        params = {"session_id": session_id, "cols": COLS} | given(profile=profile)
        return await self._link.call("session.resume", params)

    async def where_is(self, live: Live) -> str:
        """The id under which Hermes stores it now."""
        row = await self._link.row(live.id)
        if row is not None and is_id(key := row.get("session_key")):
            self.lives.rename(live, key)
        return live.key

    async def went_elsewhere(self, session_id: str) -> None:
        """Its copy in memory is out of date: close it, now or before it is taken up again."""
        self._elsewhere[session_id] = None
        if len(self._elsewhere) > MAX_ELSEWHERE:
            del self._elsewhere[next(iter(self._elsewhere))]
        try:
            await self._close_copies(session_id)
        except UpstreamError as exc:
            log.debug("a live session was not closed", extra={"code": exc.code})

    def _take_up(self, answer: Json, key_field: str) -> Live:
        id, key, info = answer.get("session_id"), answer.get(key_field), answer.get("info")
        if not is_id(id) or not is_id(key):
            raise UpstreamInvalid("the dashboard took up a conversation without an id")
        live = self.lives.add(id, key)
        if isinstance(info, dict) and "usage" in info:
            live.usage = Usage.of(info["usage"])
        for idle in self.lives.surplus(live):
            self.lives.discard(idle.id)
            self._tasks.start(self._close_idle(idle.id), "dashboard close")
        return live

    async def _close_copies(self, session_id: str) -> None:
        if (live := self.lives.of(session_id)) is not None:
            await live.settle()
        copies = [row for row in await self._link.rows() if row.get("session_key") == session_id]
        for row in copies:
            if isinstance(id := row.get("id"), str) and row.get("status") not in BUSY:
                self.lives.discard(id)
                await self._link.call("session.close", {"session_id": id})
        if not any(row.get("status") in BUSY for row in copies):  # nobody's turn is ended for this
            self._elsewhere.pop(session_id, None)

    async def _close_idle(self, live_id: str) -> None:
        try:
            row = await self._link.row(live_id)
            if row is not None and row.get("status") not in BUSY and self.lives.get(live_id) is None:
                await self._link.call("session.close", {"session_id": live_id})
        except UpstreamError as exc:
            log.debug("a live session was not closed", extra={"code": exc.code})


def is_id(value: Any) -> TypeGuard[str]:
    """Every frame of a turn carries the id of its session."""
    return isinstance(value, str) and 0 < len(value) <= MAX_ID


def given(**values: str | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}
