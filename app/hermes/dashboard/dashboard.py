"""Turns over the dashboard's socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeAlias
from urllib.parse import quote

from app.clock import Clock
from app.errors import OutcomeUncertain, RelayError
from app.hermes.dashboard.errors import CallRefused, Unanswered
from app.hermes.dashboard.events import Usage
from app.hermes.dashboard.link import Link
from app.hermes.dashboard.lives import Live
from app.hermes.dashboard.rest import MAX_ROWS
from app.hermes.dashboard.sessions import BUSY, Sessions, given, is_id
from app.hermes.dashboard.turn import TurnListener
from app.hermes.errors import SessionNotFound, UpstreamError, UpstreamInvalid, UpstreamUnsupported
from app.hermes.expanded import ends_with
from app.hermes.lease import CREDENTIAL, Lease
from app.hermes.upstream import Event, Followed, Hearer, Json, Order
from app.settings import HermesSettings
from app.tasks import Supervisor

CONNECT_S = 3.0  # longest wait for the first try to reach the dashboard
QUIET_S = 5.0  # how often it is looked whether anything was heard of a turn
QUIETS = 3  # looks without a word, after which Hermes is asked
LOOK_S = (2.0, 10.0)  # first and longest pause between two looks at a silent session
MAX_TITLE = 200  # characters
_NOT_PENDING = 4009
_MOVING = frozenset({"assistant.completed", "run.completed", "run.failed"})


HearOut: TypeAlias = Callable[[], Awaitable[Followed]]
Listen: TypeAlias = Callable[[Hearer], HearOut]  # from the call on it is heard; what it returns waits for the end


class Dashboard:
    """Open it with `async with`: while it is open it keeps a socket to the dashboard.

    `titled` hears (session_id, title) when Hermes has named a conversation, which it does after the first turn.
    """

    kind = "dashboard"
    poll_s = LOOK_S

    def __init__(
        self, settings: HermesSettings, tasks: Supervisor, *, titled: Callable[[str, str], None],
        changed: Callable[[], None] = lambda: None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._tasks, self._titled, self._sleep = tasks, titled, sleep
        self._link = Link(
            settings, tasks, observe=self._observe, lost=self._lost, changed=changed, sleep=sleep,
            clock=clock or Clock(),
        )  # fmt: skip
        self._sessions = Sessions(self._link, tasks)
        self._turns: dict[str, TurnListener] = {}  # live id → the turn of ours that is heard in it
        self.begun: Callable[[Lease, Listen], None] = lambda lease, listen: None
        """Told in the read loop when Hermes begins a turn by itself in a conversation that the relay has open."""

    async def __aenter__(self) -> Self:
        self._link.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._link.close()

    def state(self) -> dict[str, Any]:
        """{state: up, down, auth_required or off, version?, route?, code?, message?}; the last two say why."""
        return self._link.state()

    @property
    def ready(self) -> bool:
        return self._link.connection.is_open

    @property
    def failure(self) -> RelayError | None:
        """Why it is not ready; None where it is, or is switched off."""
        return self._link.failure

    async def settled(self) -> None:
        """Wait until it is known whether it is there: turns that wait for the relay's start are the first."""
        await self._link.settled(CONNECT_S)

    @property
    def approvals(self) -> tuple[str | None, float]:
        """Hermes's approvals.mode, where it is known, and how long it waits for an answer, in seconds."""
        return self._link.approval_mode, self._link.approval_s

    @property
    def base(self) -> str:
        return self._link.base

    async def messages(self, session_id: str, profile: str | None = None) -> list[Json]:
        """All rows of a conversation in order; after a compression, those of the one that continues it.

        Raises SessionNotFound.
        """
        path = f"/api/sessions/{quote(session_id, safe='')}/messages"
        answer = await self._link.get(path, given(profile=profile), MAX_ROWS)
        rows = answer.get("messages")
        if not isinstance(rows, list):
            raise UpstreamInvalid("the dashboard answered without messages")
        return [row for row in rows if isinstance(row, dict)]

    async def forget(self, session_id: str) -> None:
        """The conversation went on over another upstream: the dashboard's copy of it in memory is closed."""
        await self._sessions.went_elsewhere(session_id)

    async def create(self, order: Order) -> Json:
        """Hermes stores it with its first message; until then it lives as long as the socket, and 20 s."""
        return await self._sessions.create(order)

    async def bind(self, lease: Lease) -> Lease:
        return replace(lease, run_id=(await self._sessions.take_up(lease.session_id, lease.profile)).id)

    async def run(self, lease: Lease, order: Order, hearer: Hearer) -> None:
        if not isinstance(order.message, str):
            raise UpstreamUnsupported("the dashboard takes text only: pictures go over the API server of Hermes")
        live = self._sessions.lives.get(lease.run_id)
        if live is None:
            live = await self._sessions.take_up(lease.session_id, lease.profile)
        if await self._run_in(live, lease, order.message, hearer):
            return
        self._sessions.lives.discard(live.id)
        live = await self._sessions.take_up(lease.session_id, lease.profile)
        if not await self._run_in(live, lease, order.message, hearer):
            raise SessionNotFound()

    async def follow(self, lease: Lease, order: Order, hearer: Hearer) -> Followed:
        row = await self._link.row(lease.run_id)
        if lease.run_id is None or row is None or row.get("status") not in BUSY:
            return Followed.GONE
        key = row.get("session_key")
        live = self._sessions.lives.add(lease.run_id, key if isinstance(key, str) else lease.session_id)
        text = order.message.strip() if isinstance(order.message, str) else ""
        with self._hearing(live, hearer, in_midst=True) as listener:
            answer = await self._sessions.resume(live.key, lease.profile)
            if answer.get("session_id") != live.id or answer.get("running") is not True:
                return Followed.GONE
            if ends_with(_said(answer, "inflight", "user"), text):
                said = _said(answer, "inflight", "assistant")
                hearer.restated(said)
                listener.begin(in_midst=True, said=said)
            elif ends_with(_said(answer, "queued", "user"), text):
                listener.begin(queued=True)
            else:
                return Followed.GONE
            return await self._listen(listener, live, lease, hearer)

    async def stop(self, lease: Lease) -> bool:
        await self._link.call("session.interrupt", {"session_id": lease.run_id})
        listener = self._turns.get(lease.run_id or "")
        if listener is not None and not listener.has_begun:
            row = await self._link.row(lease.run_id)
            if row is not None and row.get("status") not in BUSY and not listener.has_begun:
                listener.cancelled()
        return True

    async def decide(self, lease: Lease, choice: str) -> int:
        try:
            answer = await self._link.call("approval.respond", {"session_id": lease.run_id, "choice": choice})
        except Unanswered as exc:
            raise OutcomeUncertain("Hermes did not say whether it took the decision") from exc
        except SessionNotFound:
            return 0
        resolved = answer.get("resolved")
        return resolved if isinstance(resolved, int) else 0

    async def answer(self, lease: Lease, request_id: str, text: str) -> bool:
        params = {"session_id": lease.run_id, "request_id": request_id, "answer": text}
        try:
            await self._link.call("clarify.respond", params)
        except Unanswered as exc:
            raise OutcomeUncertain("Hermes did not say whether it took the answer") from exc
        except CallRefused as exc:
            if exc.number == _NOT_PENDING:
                return False
            raise
        return True

    async def _run_in(self, live: Live, lease: Lease, text: str, hearer: Hearer) -> bool:
        """False: Hermes has closed this live session, and has not got the message."""
        await live.settle()
        with self._hearing(live, hearer) as listener:
            try:
                answer = await self._link.connection.call("prompt.submit", {"session_id": live.id, "text": text})
            except SessionNotFound:
                return False
            hearer.accepted(live.id)  # whatever the answer says besides
            status = answer.get("status") if isinstance(answer, dict) else None
            listener.begin(queued=status == "queued", in_midst=status == "steered")
            await self._listen(listener, live, lease, hearer)
            return True

    @contextmanager
    def _hearing(self, live: Live, hearer: Hearer, *, in_midst: bool = False) -> Iterator[TurnListener]:
        listener = TurnListener(hearer, live, self._link.approval_s, in_midst=in_midst)
        self._link.connection.listen(live.id, listener)
        self._turns[live.id] = listener
        live.turns += 1
        try:
            yield listener
        finally:
            live.turns -= 1
            if self._turns.get(live.id) is listener:
                del self._turns[live.id]
            self._link.connection.unlisten(live.id, listener)
            self._sessions.lives.used(live)

    async def _listen(self, listener: TurnListener, live: Live, lease: Lease, hearer: Hearer) -> Followed:
        watch = self._tasks.start(self._watch(listener, live.id, hearer), "dashboard turn")
        either: set[asyncio.Future[Any]] = {listener.ended, watch}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not listener.ended.done():
                return watch.result()
            events = listener.ended.result()
            hearer.events(await self._placed(events, listener, live, lease))
            return Followed.ENDED
        finally:
            watch.cancel()

    async def _watch(self, listener: TurnListener, live_id: str, hearer: Hearer) -> Followed:
        """Ends when the turn is over and nothing was heard of it: another client has its events."""
        while True:
            await self._quiet(listener)
            seen, pause = listener.count, LOOK_S[0]
            while listener.count == seen:
                if not await self._seems_busy(live_id):
                    return Followed.GONE
                if listener.count == seen and await hearer.silent():
                    return Followed.ENDED
                await self._sleep(pause)
                pause = min(pause * 2, LOOK_S[1])

    async def _quiet(self, listener: TurnListener) -> None:
        """Until nothing was heard for 15 to 20 s."""
        quiets = 0
        while quiets < QUIETS:
            seen = listener.count
            await self._sleep(QUIET_S)
            quiets = quiets + 1 if listener.count == seen else 0

    async def _seems_busy(self, live_id: str) -> bool:
        try:
            row = await self._link.row(live_id)
        except UpstreamError:
            return True  # a socket that is lost ends the turn's stream by itself
        return row is not None and row.get("status") in BUSY

    async def _placed(
        self, events: Sequence[Event], listener: TurnListener, live: Live, lease: Lease
    ) -> Sequence[Event]:
        """The events of the end; with the conversation's id if that is another one now."""
        key = live.key
        if listener.may_have_moved:
            with suppress(UpstreamError):  # the next turn finds it
                key = await self._sessions.where_is(live)
        if key == lease.session_id:
            return events
        return [(name, body | {"session_id": key} if body and name in _MOVING else body) for name, body in events]

    def _observe(self, kind: str, live_id: str, payload: Json) -> None:
        if kind == "session.title":
            session_id, title = payload.get("session_id"), payload.get("title")
            if is_id(session_id) and isinstance(title, str) and title:
                self._titled(session_id, title[:MAX_TITLE])
        elif (live := self._sessions.lives.get(live_id)) is None:
            return
        elif kind == "message.start":
            if (before := self._turns.get(live_id)) is None or before.ended.done():
                self._begins_itself(live, before)
        elif kind in ("session.info", "message.complete"):
            if "usage" in payload:
                live.usage = Usage.of(payload["usage"])
            if payload.get("running") is False:
                live.settled.set()

    def _begins_itself(self, live: Live, before: TurnListener | None) -> None:
        """What it had delegated came back, or it goes on towards a goal."""
        if before is not None:
            self._link.connection.unlisten(live.id, before)
        lease = Lease(
            route=self.kind, base=self.base, session_id=live.key, endpoint="", credential=CREDENTIAL,
            drop_interrupts=False, mark=None, last_row=0, since=(), run_id=live.id,
        )  # fmt: skip
        self.begun(lease, lambda hearer: self._overhear(live, lease, hearer))

    def _overhear(self, live: Live, lease: Lease, hearer: Hearer) -> HearOut:
        hearing = ExitStack()
        listener = hearing.enter_context(self._hearing(live, hearer, in_midst=True))
        listener.begin(in_midst=True)

        async def hear_out() -> Followed:
            with hearing:
                return await self._listen(listener, live, lease, hearer)

        return hear_out

    def _lost(self) -> None:
        self._sessions.lives.clear()


def _said(answer: Json, part: str, field: str) -> str:
    value = answer.get(part)
    text = value.get(field) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""
