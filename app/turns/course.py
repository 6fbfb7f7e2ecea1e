"""The course of one turn through Hermes: a session, a lease, the submit, its stream, and an end that is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from app.errors import RelayError
from app.hermes.dashboard.dashboard import HearOut, Listen
from app.hermes.errors import StreamBroken, UpstreamBusy, UpstreamError, UpstreamInvalid, UpstreamUnreachable
from app.hermes.upstream import Event, Order, Upstream
from app.turns import store
from app.turns.asking import Asking
from app.turns.ends import Rooms, keep_end
from app.turns.errors import TurnUncertain, waiting
from app.turns.fold import close
from app.turns.pictures import inlined
from app.turns.settle import Settlement
from app.turns.turn import Bond, Turn
from app.wire.envelope import encode
from app.wire.sse import EventTooLong

log = logging.getLogger("talaria.turns")

CHECKPOINT_S = 2.0
BUSY_S = (1.0, 2.0, 4.0)  # pauses before a Hermes that is full is asked again
WAITING_S = 10.0  # from the submit, without a word of an answer


class Course:
    """Run once. Cancelled, it leaves the turn as it is stored: the next start of the relay goes on with it.

    It is the Hearer of its upstream.
    """

    def __init__(
        self, turn: Turn, rooms: Rooms, *, opened: Callable[[Turn], None], others: Callable[[Turn], int]
    ) -> None:  # fmt: skip
        """A turn with a bond was submitted before a restart.

        `opened` is told when a new conversation has its session, `others` how many run in the same upstream.
        """
        self._turn, self._rooms, self._opened, self._others = turn, rooms, opened, others
        self._asking = Asking(turn, rooms)
        self._settlement = Settlement(turn, rooms, self)
        self._hear_out: HearOut | None = None
        self._checkpoint_due = 0.0
        self._saving = False

    def listen(self, listen: Listen) -> None:
        """To a turn that Hermes began by itself: before `run`, so that nothing of it is missed."""
        self._hear_out = listen(self)

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
        self._rooms.approvals.ended(turn.turn_id)
        turn.publish(close(turn.state))
        await keep_end(turn, self._rooms)

    async def _through(self) -> bool:
        """False if the turn was stopped before its first upstream byte, and has its end."""
        turn = self._turn
        if self._hear_out is not None:
            await self._overhear(self._hear_out)
        elif turn.bond is None and not await self._submit():
            return False
        if turn.state.finish is None:
            await self._settlement.reach()
        elif turn.state.gap:
            await self._settlement.complete()
        return True

    async def _overhear(self, hear_out: HearOut) -> None:
        """Nobody sent it, so the history cannot tell its rows from others."""
        try:
            await hear_out()
        except StreamBroken as exc:
            log.warning("a stream broke off", extra={"turn": self._turn.turn_id, "code": exc.code})
        if self._turn.state.finish is None:
            self._turn.finish("uncertain", TurnUncertain())

    async def _submit(self) -> bool:
        turn, now = self._turn, self._rooms.clock.now()
        notice = asyncio.get_running_loop().call_later(WAITING_S, self._say_waiting)
        try:
            order = await inlined(turn.order, self._rooms.pictures)
            bond, session = await self._prepare()
            lease = bond.lease
            if lease.session_id != turn.session_id:  # who sent it had not heard that the conversation moved
                turn.follow(lease.session_id)
            if not await self._rooms.db.write(lambda tx: store.submitting(tx, turn.turn_id, lease, now)):
                return False
            turn.bond = bond
            if session is not None:
                self._announce(session)
            await self._listen_in_time(bond, order)
        finally:
            notice.cancel()
        return True

    async def _listen_in_time(self, bond: Bond, order: Order) -> None:
        """A Hermes that is full has not got the message: it is asked again, a few times.

        Not where its refusal was passed on: that client asks again itself.
        """
        for pause in BUSY_S if self._turn.listener is None else ():
            try:
                return await self._listen(bond, order)
            except UpstreamBusy as exc:
                log.info("hermes is busy", extra={"turn": self._turn.turn_id, "reason": exc.message})
                await self._rooms.sleep(max(pause, exc.retry_after or 0))
        return await self._listen(bond, order)

    async def _prepare(self) -> tuple[Bond, dict[str, Any] | None]:
        """A session and a lease. An upstream that is lost in between has got nothing: then the next best is taken."""
        hermes, turn, before = self._rooms.hermes, self._turn, self._turn.session_id
        upstream = await hermes.choose(turn.order)
        try:
            return await self._prepare_over(upstream)
        except UpstreamUnreachable:
            other = await hermes.choose(turn.order)
            if other is upstream:
                raise
            turn.bind(before or "")
            return await self._prepare_over(other)

    async def _prepare_over(self, upstream: Upstream) -> tuple[Bond, dict[str, Any] | None]:
        turn, hermes, session = self._turn, self._rooms.hermes, None
        if turn.session_id is None:
            session = await upstream.create(turn.order)
            hermes.rows.read(session["id"], [])
            turn.bind(session["id"])
        return Bond(upstream, await hermes.lease(upstream, turn.state.session_id, turn.order)), session

    def _announce(self, session: dict[str, Any]) -> None:
        turn = self._turn
        self._opened(turn)
        about = {key: session[key] for key in ("title", "model") if session.get(key)}
        payload = {"turn_id": turn.turn_id, "session_id": turn.session_id} | about
        turn.watchers.send(encode("chat", "chat.session", payload, id=turn.message.get("frame_id") or turn.turn_id))

    async def _listen(self, bond: Bond, order: Order) -> None:
        """Submit, and listen to the end of the stream. Raises what says that nothing runs upstream."""
        turn = self._turn
        turn.submitted = True
        try:
            await bond.upstream.run(bond.lease, order, self)
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

    def _say_waiting(self) -> None:
        """Hermes takes more turns than it runs at once, and says nothing of those that wait."""
        state = self._turn.state
        if not (state.text or state.reasoning or state.tools.all or state.finish):
            self._turn.publish([state.emit("run.waiting", waiting(self._others(self._turn)))])

    # what the upstream says

    def accepted(self, run_id: str | None = None) -> None:
        turn, now = self._turn, self._rooms.clock.now()
        bond = turn.bound
        if not turn.answered:
            turn.answered = True
            self._rooms.hermes.rows.submitted(bond.lease.session_id, turn.turn_id)
        elif run_id in (None, bond.lease.run_id):
            return
        lease = bond.lease = replace(bond.lease, run_id=run_id or bond.lease.run_id)
        self._save(lambda: self._rooms.db.write(lambda tx: store.running(tx, turn.turn_id, lease, now)), "turn runs")

    def events(self, events: Sequence[Event]) -> None:
        turn = self._turn
        turn.take(events)
        if turn.state.signs:
            self._asking.read_signs()
        if self._rooms.clock.monotonic() >= self._checkpoint_due and not self._saving:
            self._checkpoint_due = self._rooms.clock.monotonic() + CHECKPOINT_S
            self._saving = True
            turn.watchers.review(self._rooms.clock.now())
            self._save(self._checkpoint, "turn checkpoint")

    def restated(self, text: str) -> None:
        self._turn.state.restate(text)
        self._turn.watchers.resnapshot()

    async def silent(self) -> bool:
        return await self._settlement.look_for_end()

    # what is stored on the way: the turn goes on if this fails

    def _save(self, work: Callable[[], Coroutine[Any, Any, Any]], name: str) -> None:
        self._rooms.tasks.start(self._saved(work), name)

    async def _saved(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            await work()
        except RelayError as exc:
            log.warning("a turn's progress was not stored", extra={"turn": self._turn.turn_id, "code": exc.code})
        finally:
            self._saving = False

    async def _checkpoint(self) -> None:
        turn, now = self._turn, self._rooms.clock.now()
        progress = turn.state.checkpoint()
        await self._rooms.db.write(lambda tx: store.checkpoint(tx, turn.turn_id, progress, now))
