"""How an ask goes from one state to the next, by what happens and by the passing of time.

Memory decides, at once and in order; the database follows in the same order (ledger.py), and what devices are told is
kept with each change. Hermes resolves the oldest approval of a session without saying which: one that may still be its
oldest stands in the way of those behind it, whatever the devices were told.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Any

from app.approvals import frames, store
from app.approvals.ask import LINGER_S, MARGIN_S, Ask, Asker, Json, bounded, outcome, request
from app.approvals.ledger import Ledger
from app.approvals.register import Entry, Register, State
from app.approvals.timer import Timer
from app.clock import Clock, Sleep
from app.db import Database, Tx
from app.delivery.keep import Bell
from app.tasks import Supervisor

log = logging.getLogger("talaria.approvals")

STORE_TRIES = 4  # of a new ask, over some seconds; what cannot be stored for longer is not shown
REMIND_LEFT_S = 20.0  # with less time than this to answer, a reminder comes too late


class Course:
    """Of all asks. Nothing here awaits: whoever changes an entry sees it changed."""

    def __init__(self, db: Database, clock: Clock, tasks: Supervisor, bell: Bell, sleep: Sleep) -> None:
        self._clock, self._bell = clock, bell
        self.register = Register()
        self.ledger = Ledger(db, tasks, sleep)
        self._timer = Timer(clock, tasks, sleep, self.register, self._look)

    def stop(self) -> None:
        self._timer.close()
        self.ledger.close()

    # its beginning

    def begin(self, ask: Ask, asker: Asker) -> None:
        ask, cut = bounded(ask)
        now = self._clock.now()
        id = f"{'appr' if ask.kind == 'approval' else 'ques'}-{secrets.token_hex(12)}"
        payload = request(ask, id, now, now + ask.timeout_s - MARGIN_S, cut=cut)
        is_behind = ask.kind == "approval" and self.register.head(ask.lane) is not None
        entry = Entry(
            id, ask.kind, ask.lane, ask.turn_id, ask.tool_id, ask.ref, payload, ask.timeout_s,
            heard=self._clock.monotonic(), state=State.WAITING if is_behind else State.OPEN, asker=asker,
        )  # fmt: skip
        if self.register.is_crowded(ask.turn_id) or self.ledger.full:
            log.warning("more is asked than is shown", extra={"turn": ask.turn_id, "kind": ask.kind})
            self._hide(entry)
            return
        self.register.add(entry)
        self._doubt_restored(entry.lane)
        stored, said = _stored(entry, now), entry.as_payload()

        def work(tx: Tx) -> None:
            store.insert(tx, stored)
            frames.keep_request(tx, self._bell, id, said, now)
            tx.after_commit(lambda: _show(entry))

        self.ledger.put(work, tries=STORE_TRIES, wanted=lambda: entry.live, lost=lambda: self._lose(entry))
        self._timer.arm()

    def _doubt_restored(self, lane: str) -> None:
        """Somebody may have answered one from before a start while nobody listened: then an answer to it would reach
        the one asked after it. So it can be answered only as long as there is none.
        """
        for entry in self.register.of_lane(lane)[:-1]:
            if entry.restored and entry.live and entry.state is not State.ANSWERING:
                self.close(entry, "uncertain", blocks=True)

    def _hide(self, entry: Entry) -> None:
        """Nobody can answer it, but an answer to a later one would reach it. Several in a row count as one."""
        entry.state, entry.recorded = State.CLOSED, True
        if entry.kind == "question":
            return
        entry.blocks = True
        tail = self.register.tail(entry.lane)
        if tail is not None and not (tail.live or tail.shown) and tail.turn_id == entry.turn_id:
            tail.blocks_until, tail.tool_id = max(tail.blocks_until, entry.blocks_until), None
        else:
            self.register.add(entry)
        self._doubt_restored(entry.lane)
        self._timer.arm()

    def _lose(self, entry: Entry) -> None:
        if entry.live:
            log.error("an approval or question is not shown", extra={"turn": entry.turn_id, "kind": entry.kind})
            entry.state, entry.blocks, entry.recorded = State.CLOSED, entry.kind == "approval", True
            self._closed(entry)

    # its end

    def go_on(self, entry: Entry) -> None:
        """The agent does not wait for it any more."""
        if entry.state is State.ANSWERING:
            entry.passed = True
        elif entry.live:
            self.close(entry, "resolved_elsewhere")
        else:
            entry.blocks = False
            self._closed(entry)

    def expire(self, entry: Entry) -> None:
        self.close(entry, "expired", blocks=True)

    def reopen(self, entry: Entry) -> None:
        """Its answer was not sent."""
        entry.state = State.OPEN
        entry.answered.set()
        if entry.passed:
            self.close(entry, "resolved_elsewhere")
        elif entry.is_late(self._clock):
            self.expire(entry)
        self._timer.arm()

    def close(
        self, entry: Entry, became: str, said: str | None = None, by: str | None = None, *, blocks: bool = False
    ) -> asyncio.Future[Any]:
        """`blocks`: the upstream may still think of it as its oldest. Ends with the first try to store it."""
        now = self._clock.now()
        entry.state, entry.outcome, entry.blocks = State.CLOSED, became, blocks and entry.kind == "approval"
        entry.answered.set()
        until = now + max(0.0, entry.blocks_until - self._clock.monotonic()) if entry.blocks else now
        payload = outcome(entry.kind, entry.id, entry.turn_id, became, said, by)

        def work(tx: Tx) -> None:
            if store.close(tx, entry.id, became, until, now):
                frames.keep_outcome(tx, self._bell, entry.id, payload, now)

        tried = self.ledger.put(work, stored=lambda: self._recorded(entry))
        self._closed(entry)
        return tried

    def _recorded(self, entry: Entry) -> None:
        entry.recorded = True
        self.register.tidy(entry)

    def _closed(self, entry: Entry) -> None:
        """Unless it still blocks its lane, the next one there has its turn."""
        self.register.tidy(entry)
        self._open_next(entry.lane)
        self._timer.arm()

    def _open_next(self, lane: str) -> None:
        head = self.register.head(lane)
        if head is None or head.state is not State.WAITING:
            return
        if head.is_late(self._clock):
            self.expire(head)
            return
        head.state = State.OPEN
        head.reminded = head.reminded or self._clock.monotonic() >= head.half_time
        self._keep_again(head, store.open_waiting, frames.OPENED, head.as_payload())

    # the course of time

    def _look(self) -> None:
        """Do what is due."""
        now = self._clock.monotonic()
        for entry in self.register:
            if entry.state is State.CLOSED:
                if entry.blocks and now >= entry.blocks_until:
                    entry.blocks = False
                    self._closed(entry)
            elif entry.state is not State.ANSWERING:
                if entry.is_late(self._clock):
                    self.expire(entry)
                elif not entry.reminded and now >= entry.half_time:
                    self._remind(entry)

    def _remind(self, entry: Entry) -> None:
        entry.reminded = True
        if entry.state is State.OPEN and entry.left_s(self._clock) - MARGIN_S >= REMIND_LEFT_S:
            self._keep_again(entry, store.reminded, frames.REMINDER, entry.as_payload() | {"reminder": True})

    def _keep_again(self, entry: Entry, change: frames.Change, part: str, said: Json) -> None:
        now = self._clock.now()

        def work(tx: Tx) -> None:
            if change(tx, entry.id):
                frames.keep_request(tx, self._bell, entry.id, said, now, part)

        self.ledger.put(work, wanted=lambda: entry.live)

    # after a start

    def restore(self, rows: Sequence[store.Stored]) -> None:
        """What was being answered is uncertain; time has gone on for the rest."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        entries = [_restored(stored, now, monotonic) for stored in rows]
        for entry in entries:
            self.register.add(entry)
        for entry, stored in zip(entries, rows, strict=True):
            if entry.state is State.ANSWERING:
                log.warning("an answer was cut off", extra={"ask": entry.id})
                self.close(entry, "uncertain", stored.answer, stored.answered_by, blocks=True)
        self._look()
        for entry in self.register:
            self._doubt_restored(entry.lane)
            self._open_next(entry.lane)
        self._timer.arm()


def _show(entry: Entry) -> None:
    entry.shown = True


def _stored(entry: Entry, now: float) -> store.Stored:
    return store.Stored(
        entry.id, entry.kind, entry.lane, entry.turn_id, entry.tool_id, entry.ref, str(entry.state), entry.payload,
        entry.timeout_s, now, entry.expires_at, now + entry.timeout_s + LINGER_S,
    )  # fmt: skip


def _restored(stored: store.Stored, now: float, monotonic: float) -> Entry:
    """A clock that was set back meanwhile makes nothing older than it is, nor block for longer than it can."""
    left = min(max(stored.blocks_until - now, 0.0), stored.timeout_s + LINGER_S)
    is_closed = stored.state == State.CLOSED
    return Entry(
        stored.id, stored.kind, stored.lane, stored.turn_id, stored.tool_id, stored.ref, dict(stored.payload),
        stored.timeout_s, heard=monotonic - max(0.0, now - stored.asked_at), state=State(stored.state), asker=None,
        blocks_until=monotonic + left, blocks=is_closed, shown=True, recorded=is_closed, reminded=stored.reminded,
        outcome=stored.outcome, restored=True,
    )  # fmt: skip
