"""The course of one turn through Hermes: a session, a lease, the submit, its stream, and an end that is known."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.clock import Clock
from app.db import Database, Tx
from app.delivery.keep import Bell, keep
from app.delivery.peer import Peer
from app.errors import Overloaded, RelayError, StorageFailed, StorageFull
from app.hermes.errors import StreamBroken, UpstreamError, UpstreamInvalid, UpstreamUnreachable
from app.hermes.hermes import Hermes
from app.hermes.lease import Lease
from app.hermes.upstream import Event, Order, Upstream
from app.tasks import Supervisor
from app.turns import state as folded
from app.turns import store
from app.turns.errors import TurnInterrupted, TurnUncertain
from app.turns.events import end_payload, end_type
from app.turns.history import Verdict, judge, restate
from app.turns.state import close
from app.turns.turn import Turn
from app.wire.envelope import encode
from app.wire.sse import EventTooLong

log = logging.getLogger("talaria.turns")

CHECKPOINT_S = 2.0
POLL_S = (2.0, 10.0)  # first and longest pause between looks at the history
NO_NEWS_S = 30 * 60.0  # without a new row: then nothing will come any more
UNSEEN_S = 120.0  # without our own row, where Hermes never answered the submit
STORE_AGAIN_S = (1.0, 30.0)

Sleep = Callable[[float], Awaitable[None]]


class Devices(Protocol):
    """The hub, as far as turns need it."""

    def of_device(self, device_id: str) -> tuple[Peer, ...]: ...
    def ring(self, devices: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Rooms:
    """What a turn's course needs of the house. `sleep` is what tests replace to own the time."""

    db: Database
    clock: Clock
    tasks: Supervisor
    hub: Devices
    hermes: Hermes
    sleep: Sleep


class Course:
    """Run once. Cancelled, it leaves the turn as it is stored: the next start of the relay ends it."""

    def __init__(self, turn: Turn, rooms: Rooms, opened: Callable[[Turn], None]) -> None:
        """`opened` is told when a new conversation has its session."""
        self._turn, self._rooms, self._opened = turn, rooms, opened
        self._checkpoint_due = 0.0
        self._saving = False
        self._answered = False  # Hermes has accepted the submit

    async def run(self) -> None:
        turn = self._turn
        try:
            if not await self._through():
                return
        except RelayError as exc:
            log.warning("a turn failed", extra={"turn": turn.turn_id, "code": exc.code, "reason": exc.detail})
            turn.finish("failed", exc)
        except Exception:
            log.exception("a turn failed in the relay", extra={"turn": turn.turn_id})
            turn.finish("uncertain" if turn.submitted else "failed", RelayError("the relay failed on this turn"))
        turn.publish(close(turn.state))
        await self._keep_end()

    async def _through(self) -> bool:
        """False if the turn was stopped before its first upstream byte, and has its end."""
        turn, hermes, clock = self._turn, self._rooms.hermes, self._rooms.clock
        session, order = None, Order(turn.sent, turn.message.get("model"), turn.message.get("profile"))
        upstream = await hermes.choose(order)
        if turn.session_id is None:
            session = await upstream.create(order)
            hermes.rows.read(session["id"], [])
            turn.bind(session["id"])
        session_id = turn.state.session_id
        lease = await hermes.lease(upstream, session_id, order)
        submitting = (turn.turn_id, session_id, lease.as_json())
        if not await self._rooms.db.write(lambda tx: store.submitting(tx, *submitting, clock.now())):
            return False
        if session is not None:
            self._announce(session)
        await self._read(upstream, lease, order)
        if turn.state.finish is None:
            await self._settle(lease)
        return True

    def _announce(self, session: dict[str, Any]) -> None:
        turn = self._turn
        self._opened(turn)
        about = {key: session[key] for key in ("title", "model") if session.get(key)}
        payload = {"turn_id": turn.turn_id, "session_id": turn.session_id} | about
        turn.watchers.send(encode("chat", "chat.session", payload, id=turn.message.get("frame_id") or turn.turn_id))

    # the stream

    async def _read(self, upstream: Upstream, lease: Lease, order: Order) -> None:
        """Submit, and read to the end of the stream. Raises what says that nothing runs upstream."""
        turn = self._turn
        turn.submitted = True
        try:
            await upstream.run(lease, order, self)
        except UpstreamUnreachable:
            turn.submitted = False
            raise
        except (StreamBroken, UpstreamInvalid, EventTooLong) as exc:
            log.warning("a stream broke off", extra={"turn": turn.turn_id, "code": exc.code, "reason": exc.detail})
        except UpstreamError:
            turn.submitted = False
            raise
        except Exception:  # ours: Hermes goes on, so the history will know
            log.exception("reading a stream failed", extra={"turn": turn.turn_id})
        if turn.state.dropped:
            log.warning("events were dropped", extra={"turn": turn.turn_id, "events": turn.state.dropped})

    def accepted(self, run_id: str | None = None) -> None:
        self._answered = True
        self._rooms.hermes.rows.submitted(self._turn.state.session_id, self._turn.turn_id)

    def restated(self, text: str) -> None:
        raise NotImplementedError

    async def silent(self) -> bool:
        return False

    def events(self, events: Sequence[Event]) -> None:
        self._turn.take(events)
        if self._rooms.clock.monotonic() >= self._checkpoint_due and not self._saving:
            self._checkpoint_due = self._rooms.clock.monotonic() + CHECKPOINT_S
            self._saving = True
            self._turn.watchers.review(self._rooms.clock.now())
            self._rooms.tasks.start(self._checkpoint(), "turn checkpoint")

    async def _checkpoint(self) -> None:
        """Also says that the turn is running. The turn goes on if this fails."""
        turn, now = self._turn, self._rooms.clock.now()
        state = turn.state
        progress = state.snapshot() | {"n": state.n, "session_id": state.session_id}
        try:
            await self._rooms.db.write(lambda tx: store.checkpoint(tx, turn.turn_id, progress, now))
        except RelayError as exc:
            log.warning("a checkpoint failed", extra={"turn": turn.turn_id, "code": exc.code})
        finally:
            self._saving = False

    # without an end

    async def _settle(self, lease: Lease) -> None:
        """The stream brought no end: the history decides."""
        clock, pause = self._rooms.clock, POLL_S[0]
        began = news_at = clock.monotonic()
        last_row = 0
        self._rooms.hermes.rows.forget(lease.session_id)
        earlier = await self._rooms.db.read(lambda tx: store.messages(tx, lease.since))
        while True:
            await self._rooms.sleep(pause)
            pause = min(pause * 1.5, POLL_S[1])
            verdict, restarted = await self._look(lease, earlier)
            now = clock.monotonic()
            if verdict is not None:
                if verdict.last_row > last_row:
                    last_row, news_at = verdict.last_row, now
                if self._decide(verdict, lease, restarted=restarted, patient=now - began < UNSEEN_S):
                    return
            if now - news_at >= NO_NEWS_S:
                self._conclude("uncertain", TurnUncertain(), verdict)
                return

    async def _look(self, lease: Lease, earlier: Sequence[Any]) -> tuple[Verdict | None, bool]:
        """What the rows say now, and whether Hermes has restarted. No verdict: it could not be asked."""
        hermes, turn = self._rooms.hermes, self._turn
        try:
            mark = await hermes.api.mark()
            rows = await hermes.api.messages(turn.state.session_id)
        except UpstreamError as exc:
            log.info("the history cannot be read", extra={"turn": turn.turn_id, "code": exc.code})
            return None, False
        restarted = lease.mark is not None and mark is not None and mark != lease.mark
        return judge(rows, lease.last_row, earlier, turn.sent), restarted

    def _decide(self, verdict: Verdict, lease: Lease, *, restarted: bool, patient: bool) -> bool:
        if verdict.completed:
            self._conclude("completed", None, verdict)
        elif restarted and verdict.rows is None:
            self._conclude("uncertain", TurnUncertain(), verdict)
        elif restarted or (lease.drop_interrupts and verdict.rows is not None):
            self._conclude("interrupted", TurnInterrupted(), verdict)
        elif verdict.rows is None and not self._answered and not patient:
            self._conclude("uncertain", TurnUncertain(), verdict)
        else:
            return False
        return True

    def _conclude(self, finish: str, error: RelayError | None, verdict: Verdict | None) -> None:
        turn = self._turn
        before = str(turn.state.text)
        if verdict is not None and verdict.rows is not None:
            restate(turn.state, verdict.rows, completed=verdict.completed)
            self._show_restated(before)
        turn.finish(finish, error)

    def _show_restated(self, before: str) -> None:
        turn = self._turn
        after = str(turn.state.text)
        missing: list[folded.Event] = []
        if after != before and after.startswith(before):
            missing = [turn.state.emit("assistant.delta", {"delta": after[len(before) :]})]
        turn.publish(missing)  # for clients that know no snapshot
        turn.watchers.resnapshot()

    # the end

    async def _keep_end(self) -> None:
        """Stored and kept in one work. It is tried until it succeeds: a full disk loses no end."""
        turn, clock, pause = self._turn, self._rooms.clock, STORE_AGAIN_S[0]
        payload = end_payload(turn.turn_id, turn.state, clock.now())
        while True:
            try:
                await self._rooms.db.write(lambda tx: end_turn(tx, self._rooms.hub.ring, payload, clock.now()))
                break
            except (StorageFull, StorageFailed, Overloaded) as exc:
                log.error("the end of a turn cannot be stored", extra={"turn": turn.turn_id, "code": exc.code})
            await self._rooms.sleep(pause)
            pause = min(pause * 2, STORE_AGAIN_S[1])
        turn.watchers.ended(encode("chat", end_type(payload["finish"]), payload, id=turn.turn_id))
        log.info(
            "a turn ended", extra={"turn": turn.turn_id, "finish": payload["finish"], "events": turn.state.n}
        )  # fmt: skip


def end_turn(tx: Tx, bell: Bell, payload: dict[str, Any], now: float) -> bool:
    """Part of a work: store an end and keep it for every device that listens. False if it was stored already."""
    if not store.end(tx, payload["turn_id"], payload, now):
        return False
    type_ = end_type(payload["finish"])
    keep(tx, bell, None, id=payload["turn_id"], channel="chat", type=type_, kind="turn", payload=payload, now=now)
    return True
