"""What the API server of Hermes offers: conversations, runs, and the streams of turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import orjson

from app.clock import Clock
from app.errors import OutcomeUncertain
from app.hermes.calls import Calls
from app.hermes.capabilities import Capabilities, parse_capabilities
from app.hermes.errors import (
    ApprovalNotPending,
    HistoryHidden,
    RouteMissing,
    RunNotFound,
    TitleRefused,
    UpstreamError,
    UpstreamInvalid,
    UpstreamUnreachable,
)
from app.hermes.lease import Lease, ProcessMark
from app.hermes.listener import Listener
from app.hermes.local_first import mark_of
from app.hermes.stream import Sink, get_events, post_events
from app.hermes.upstream import Json, Order
from app.settings import HermesSettings

MAX_MOVES = 32  # of one conversation, as many as Hermes itself looks through
MAX_ID = 256  # characters of a session's id: every frame of its turns carries it


class HermesApi(Calls):
    """Every call raises UpstreamError."""

    def __init__(
        self, settings: HermesSettings, failed: Callable[[UpstreamError], None] = lambda _: None, *,
        moved: Callable[[], None] = lambda: None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        super().__init__(settings, failed, moved=moved, clock=clock)
        self._capabilities: Capabilities | None = None
        self._probing = asyncio.Lock()

    def forget(self) -> None:
        super().forget()
        self._capabilities = None

    # what it is

    async def capabilities(self, *, fresh: bool = False) -> Capabilities:
        """Asked once, and again after a failure."""
        async with self._probing:
            if fresh or self._capabilities is None:
                with self.naming():
                    version = await self.choice.look()
                try:
                    answer = await self.call("GET", "/v1/capabilities")
                except RouteMissing:
                    self._capabilities = Capabilities(known=False, version=version)
                else:
                    self._capabilities = parse_capabilities(answer, version)
            return self._capabilities

    async def mark(self) -> ProcessMark | None:
        """Which process answers; None where this Hermes does not say."""
        path = (await self.capabilities()).path("health_detailed")
        try:
            answer = await self.call("GET", path)
        except RouteMissing:
            return None
        return mark_of(answer.get("pid"), answer.get("platforms"))

    async def restarted(self, lease: Lease) -> bool:
        """Whether Hermes is known to have restarted since."""
        mark = await self.mark()
        return lease.mark is not None and mark is not None and mark != lease.mark

    # conversations

    async def create_session(
        self, *, title: str | None = None, model: str | None = None, profile: str | None = None
    ) -> Json:
        """The new session's object; its `id` is a non-empty string. Raises OutcomeUncertain, TitleRefused."""
        path = (await self.capabilities()).path("session_create")
        return _session(
            await self.call("POST", path, body=_given(title=title, model=model), profile=profile, once=True)
        )

    async def session_for(self, order: Order) -> Json:
        """A new session for a turn. Raises UpstreamError only: at worst an empty session is left behind."""
        try:
            return await self.create_session(model=order.model, profile=order.profile)
        except OutcomeUncertain as exc:
            raise exc.__cause__ or UpstreamUnreachable(detail=exc.detail) from exc

    async def list_sessions(self, limit: int, offset: int, profile: str | None = None) -> tuple[list[Json], bool]:
        """A page of sessions, the last used first, and whether there are more."""
        path = (await self.capabilities()).path("sessions")
        answer = await self.call("GET", path, params={"limit": limit, "offset": offset}, profile=profile)
        return _objects(answer), answer.get("has_more") is True

    async def session(self, session_id: str, profile: str | None = None) -> Json:
        """Raises SessionNotFound, as all of these do."""
        path = (await self.capabilities()).path("session", session_id=session_id)
        return _session(await self.call("GET", path, profile=profile))

    async def rename_session(self, session_id: str, title: str, profile: str | None = None) -> Json:
        """Raises TitleRefused: it is too long, or another session has it."""
        path = (await self.capabilities()).path("session_update", session_id=session_id)
        return _session(await self.call("PATCH", path, body={"title": title}, profile=profile))

    async def delete_session(self, session_id: str, profile: str | None = None) -> None:
        """Raises OutcomeUncertain. A turn that runs in it goes on, and brings it back."""
        path = (await self.capabilities()).path("session_delete", session_id=session_id)
        await self.call("DELETE", path, profile=profile, once=True)

    async def fork_session(self, session_id: str, title: str | None, profile: str | None = None) -> Json:
        """The new session. Raises OutcomeUncertain, TitleRefused.

        Given a title that it refuses, Hermes would leave a fork without one: it gets its title after.
        """
        path = (await self.capabilities()).path("session_fork", session_id=session_id)
        made = _session(await self.call("POST", path, body={}, profile=profile, once=True))
        if title is None:
            return made
        try:
            return await self.rename_session(made["id"], title, profile)
        except TitleRefused:
            await self.delete_session(made["id"], profile)
            raise
        except UpstreamError as exc:
            raise OutcomeUncertain(f"the fork was made, but has no title: {exc.message}", detail=exc.detail) from exc

    async def messages(self, session_id: str, profile: str | None = None) -> list[Json]:
        """All rows of a conversation in order. Raises SessionNotFound, HistoryHidden."""
        return (await self.transcript(session_id, profile))[1]

    async def transcript(self, session_id: str, profile: str | None = None) -> tuple[str, list[Json]]:
        """Where the conversation is now, which is another session once Hermes has compressed it, and its rows."""
        path = (await self.capabilities()).path("session_messages", session_id=session_id)
        answer = await self.call("GET", path, profile=profile)
        now = answer.get("session_id")
        if not isinstance(now, str) or not 0 < len(now) <= MAX_ID:
            now = session_id
        if now != session_id and not await self._went_on(session_id, now, profile):
            raise HistoryHidden()
        return now, _objects(answer)

    async def _went_on(self, session_id: str, now: str, profile: str | None) -> bool:
        """Whether one session became the other by compression. 0.19 takes a fork over this API for the same."""
        for _ in range(MAX_MOVES):
            parent = (await self.session(now, profile)).get("parent_session_id")
            if not isinstance(parent, str) or (await self.session(parent, profile)).get("end_reason") != "compression":
                return False
            if parent == session_id:
                return True
            now = parent
        return False

    # a turn

    async def stream(
        self, lease: Lease, body: Json, sink: Sink, opened: Callable[[], None],
        headers: Mapping[str, str] | None = None, listener: Listener | None = None,
    ) -> None:  # fmt: skip
        """POST to the endpoint of the lease and read to the end of its stream. See `post_events` for what it raises."""
        path = await self.path(lease.endpoint, lease.profile)
        with self.naming():
            await post_events(
                self.route_of(lease), path, orjson.dumps(body), sink, opened=opened, headers=headers, listener=listener
            )

    async def listen(self, lease: Lease, path: str, sink: Sink) -> None:
        """Read a stream that is there already, to its end."""
        path = await self.path(path, lease.profile)
        with self.naming():
            await get_events(self.route_of(lease), path, sink, opened=lambda: None)

    async def stop_run(self, lease: Lease) -> bool:
        """False: nothing runs there any more."""
        path = (await self.capabilities()).path("run_stop", run_id=lease.run_id or "")
        try:
            await self.call("POST", path, body={}, profile=lease.profile, route=self.route_of(lease))
        except RunNotFound:
            return False
        return True

    async def decide_run(self, lease: Lease, choice: str) -> int:
        """How many approvals it resolved. Raises OutcomeUncertain."""
        path = (await self.capabilities()).path("run_approval", run_id=lease.run_id or "")
        try:
            answer = await self.call(
                "POST", path, body={"choice": choice}, profile=lease.profile, once=True, route=self.route_of(lease)
            )
        except (ApprovalNotPending, RunNotFound):
            return 0
        resolved = answer.get("resolved")
        return resolved if isinstance(resolved, int) else 0


def _given(**fields: str | None) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _session(answer: Json) -> Json:
    session = answer.get("session", answer)
    id = session.get("id") if isinstance(session, dict) else None
    if not isinstance(id, str) or not 0 < len(id) <= MAX_ID:
        raise UpstreamInvalid("Hermes answered with a conversation that has no id")
    return dict(session)


def _objects(answer: Json) -> list[Json]:
    data = answer.get("data")
    if not isinstance(data, list):
        raise UpstreamInvalid("Hermes answered without a list")
    return [row for row in data if isinstance(row, dict)]
