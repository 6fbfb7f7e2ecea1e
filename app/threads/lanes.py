"""What devices said, given to the gateway: in each thread one at a time and in order, the next when that is done.

It is stored until the gateway is through with it, and given again, under the same id, to a plugin that comes back
without having taken it.
"""

from __future__ import annotations

import logging

from app.clock import Clock
from app.db import Database
from app.errors import RelayError
from app.hermes.link.codec import Inbound
from app.hermes.link.line import AgentLink
from app.tasks import Supervisor
from app.threads import store
from app.threads.store import HOME, Lane, Waiting

log = logging.getLogger("talaria.threads")

STALE_S = 60.0  # a command about what ran then must not reach what runs so much later
# Commands about the turn that runs, which must not wait for its end. Hermes takes them at any time.
_AT_ONCE = frozenset({"approve", "busy", "deny", "queue", "status", "steer", "stop"})


def is_at_once(text: str) -> bool:
    return text.startswith("/") and text[1:].split(maxsplit=1)[:1] != [] and text[1:].split()[0].lower() in _AT_ONCE


class Lanes:
    def __init__(self, db: Database, clock: Clock, tasks: Supervisor, link: AgentLink) -> None:
        self._db, self._clock, self._tasks, self._link = db, clock, tasks, link
        self._given: dict[Lane, str] = {}  # what each thread is busy with
        self._looking: set[Lane] = set()
        self._again: set[Lane] = set()  # something came while its thread was looked at
        self._over: dict[Lane, set[str]] = {}  # what ended there meanwhile

    def is_busy(self, lane: Lane) -> bool:
        return lane in self._given

    def up(self) -> None:
        self._tasks.start(self._begin(), "inbound begins")

    def down(self) -> None:
        """Whether it has what it was given, will be seen when it is back."""
        self._given.clear()

    def kick(self, lane: Lane) -> None:
        """Something was stored for it, or it is free."""
        if lane in self._looking:
            self._again.add(lane)
        elif self._link.is_up and lane not in self._given:
            self._looking.add(lane)
            self._tasks.start(self._give_next(lane), "inbound")

    def pass_by(self, waiting: Waiting) -> None:
        """Beside whatever its thread is busy with."""
        self._link.give(_inbound(waiting))

    def through(self, lane: Lane, id: str) -> bool:
        """The gateway is through with it; that is stored. Whether its thread was busy with it."""
        was_busy = self._given.get(lane) == id
        if was_busy:
            del self._given[lane]
        if lane in self._looking:
            self._over.setdefault(lane, set()).add(id)
        self.kick(lane)
        return was_busy

    async def _give_next(self, lane: Lane) -> None:
        waiting: Waiting | None = None
        try:
            waiting = await self._db.read(lambda tx: store.next_of(tx, lane))
        except RelayError as exc:
            log.error("what waits for the gateway cannot be read", extra={"code": exc.code})
        finally:
            self._looking.discard(lane)
        came = lane in self._again
        self._again.discard(lane)
        over = self._over.pop(lane, set())
        if waiting is None or waiting.id in over:
            if came:
                self.kick(lane)
        elif self._link.is_up:
            self._given[lane] = waiting.id
            if waiting.state == "queued":
                self._link.give(_inbound(waiting))

    async def _begin(self) -> None:
        """A plugin is there."""
        now = self._clock.now()
        try:
            lanes, passing = await self._db.read(lambda tx: (store.lanes(tx), store.passing(tx)))
            for one in passing:
                if one.state == "taken" or (one.said["text"].startswith("/") and now - one.created_at > STALE_S):
                    await self._db.write(lambda tx, id=one.id: store.through(tx, id))  # type: ignore[misc]
                else:
                    self.pass_by(one)
        except RelayError as exc:
            log.error("what waits for the gateway cannot be read", extra={"code": exc.code})
            return
        for lane in lanes:
            self.kick(lane)


def _inbound(waiting: Waiting) -> Inbound:
    said, lane = waiting.said, waiting.lane
    name = "Home" if lane.chat_id == HOME else lane.chat_id
    return Inbound(
        waiting.id, lane.chat_id, said["text"], name, lane.thread_id or None, said.get("reply_to"),
        media=said.get("media", []),
    )  # fmt: skip
