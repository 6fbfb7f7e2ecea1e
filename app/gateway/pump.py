"""Sends a device what was kept for it.

One loop for what it missed and for what comes, so that nothing doubles or reorders. It stops for good when it reads
that a newer link of its instance has been admitted; acknowledgements that still reach the older link count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.clock import Clock
from app.db import Database, Tx
from app.delivery.acks import Acks
from app.errors import RelayError
from app.gateway.outbound import Outbound
from app.gateway.voices import Acknowledging, Voice
from app.outbox import store
from app.outbox.store import Kept, Mailbox
from app.tasks import Supervisor
from app.wire.envelope import encode
from app.wire.payloads import Resume

log = logging.getLogger("talaria.gateway")

PAGE = 64  # frames read at once
RETRY_S = 2.0  # when the database could not be read


@dataclass(frozen=True, slots=True)
class Position:
    """Where a link begins. `reset` says why it is not where the client asked to."""

    epoch: str
    after: int
    head: int
    reset: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Whose pump it is. `generation` 0: the instance has no name, or it could not be stored; nothing supersedes."""

    device_id: str
    instance: str | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Rooms:
    """What every pump needs of the house."""

    db: Database
    clock: Clock
    acks: Acks
    tasks: Supervisor


def locate(tx: Tx, device_id: str, box: Mailbox, acked: int, resume: Resume | None) -> Position:
    """`acked` is the highest acknowledgement known, stored or not.

    Where the client's numbers are not ours any more, its place is unknown, and an ack may be another instance's: it
    gets all that is kept and knows doubles by their ids.
    """
    after, reset = max(box.acked, acked), None
    if resume is not None and resume.epoch is not None and resume.after is not None:
        after = resume.after
        if resume.epoch != box.epoch:
            after, reset = box.floor, "epoch_changed"
        elif resume.after > box.head or not _knows(tx, device_id, box, resume):
            after, reset = box.floor, "rolled_back"
    if after < box.floor:
        after, reset = box.floor, "retention"
    return Position(box.epoch, after, box.head, reset)


def _knows(tx: Tx, device_id: str, box: Mailbox, resume: Resume) -> bool:
    """Whether the frame at the client's place is the one it has there. What retention dropped is not compared."""
    if resume.id is None or resume.after is None or resume.after <= box.floor:
        return True
    return store.id_at(tx, device_id, resume.after) == resume.id


class Pump:
    """For one link. `caught_up` is called each time everything missed has been sent; `shows` says whether this session
    may still read what is kept.
    """

    def __init__(
        self,
        place: Place,
        start: Position,
        rooms: Rooms,
        outbound: Outbound,
        voice: Voice,
        caught_up: Callable[[], None],
        shows: Callable[[], bool],
    ) -> None:
        self._place, self._rooms, self._outbound, self._shows = place, rooms, outbound, shows
        self._voice, self._caught_up = voice, caught_up
        self._epoch = start.epoch
        self._cursor = start.after
        self._head = start.head
        self._sent = start.after  # the highest number this link was sent: an ack beyond it is nonsense
        self._acked = 0
        self._asked: int | None = None  # a ping is out: its pong confirms up to this number
        self._tell_synced = True
        self._rung = False
        self._stopped = False
        self._task: asyncio.Task[None] | None = None
        if start.reset is not None:
            self._say_reset(start.after, start.head, start.reset)
        self.acknowledge(start.epoch, start.after)

    def begin(self, *, is_current: bool) -> None:
        """`is_current`: nothing was kept for any device since `start` was read."""
        if is_current and self._cursor == self._head:
            self._say_synced()
        else:
            self.ring()

    def ring(self) -> None:
        self._rung = True
        if (self._task is None or self._task.done()) and not self._is_over():
            self._task = self._rooms.tasks.start(self._run(), "pump")

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """Nothing more is sent; what was, may still be acknowledged."""
        self._stopped = True

    def go_on(self, start: Position, voice: Voice) -> bool:
        """Begin again on the same link, after what it was sent. False: the numbers have changed since."""
        if start.epoch != self._epoch:
            return False
        self._voice = voice
        self._cursor = max(self._cursor, start.after)
        self._sent = max(self._sent, self._cursor)
        self._tell_synced, self._stopped = True, False
        return True

    def acknowledge(self, epoch: str, seq: int) -> None:
        seq = min(seq, self._sent)
        if epoch == self._epoch and seq > self._acked:
            self._acked = seq
            self._rooms.acks.add(self._place.device_id, epoch, seq)

    def pong(self) -> None:
        """An older client has read up to our ping. It sends its own clock and id, so any pong answers it."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            self.acknowledge(self._epoch, asked)
            self._ask()

    def replay(self, after: int | None) -> None:
        """Go back (or on) to `after` and say so when caught up."""
        self._cursor = min(self._acked if after is None else after, self._sent)
        self._tell_synced = True
        self.ring()

    def _is_over(self) -> bool:
        return self._stopped or self._outbound.closed

    async def _run(self) -> None:
        while self._rung and not self._is_over():
            self._rung = False
            try:
                while await self._send_page():
                    pass
            except RelayError as exc:
                log.error("a mailbox could not be read", extra={"code": exc.code, "reason": exc.detail})
                await asyncio.sleep(RETRY_S)
                self._rung = True

    async def _send_page(self) -> bool:
        """True if there may be more."""
        await self._outbound.room()
        cursor = self._cursor
        read = await self._rooms.db.read(lambda tx: self._page(tx, cursor))
        if read is None:
            self._stopped = True
        if self._is_over() or read is None:
            return False
        if cursor != self._cursor:
            return True
        page, box = read
        if box is not None and box.floor > cursor:
            cursor = self._skip_to_floor(box)
        if not self._shows():
            page = [replace(kept, void=kept.void or "not_granted") for kept in page]
        for kept in page:
            if kept.void is not None:
                self._rooms.acks.void(self._place.device_id, self._epoch, kept.seq, kept.void)
        for seq, frame in self._voice.frames(page):
            await self._outbound.room()
            if cursor != self._cursor:
                return True  # a replay was asked for meanwhile: this page is another place
            if self._is_over():
                return False
            if frame is not None:
                self._outbound.send(frame)
            self._cursor = cursor = seq
            self._sent = max(self._sent, seq)
        if page:
            self._rooms.acks.sent(self._place.device_id, self._epoch, self._sent)
            self._ask()
        if len(page) == PAGE or cursor != self._cursor:
            return True
        self._say_synced()
        return False

    def _say_synced(self) -> None:
        if self._tell_synced:
            self._tell_synced = False
            self._outbound.send(self._voice.caught_up(self._epoch, self._cursor))
            self._caught_up()

    def _skip_to_floor(self, box: Mailbox) -> int:
        """Retention has dropped what was to come next."""
        self._cursor, self._sent = box.floor, max(self._sent, box.floor)
        self._say_reset(box.floor, box.head, "retention")
        self.acknowledge(self._epoch, box.floor)
        return box.floor

    def _say_reset(self, after: int, head: int, reason: str) -> None:
        if isinstance(self._voice, Acknowledging):
            payload = {"epoch": self._epoch, "after": after, "head": head, "reason": reason}
            self._outbound.send(encode("system", "reset", payload))

    def _page(self, tx: Tx, cursor: int) -> tuple[list[Kept], Mailbox | None] | None:
        """What follows `cursor`; with the mailbox where that is not the very next number. None: a newer link of this
        instance has been admitted.
        """
        place = self._place
        if place.instance is not None and place.generation:
            newest = store.generation(tx, place.device_id, place.instance)
            if newest > place.generation:
                return None
        page = store.after(tx, place.device_id, cursor, PAGE, self._rooms.clock.now())
        is_next = bool(page) and page[0].seq == cursor + 1
        return page, None if is_next else store.mailbox(tx, place.device_id)

    def _ask(self) -> None:
        """One question at a time."""
        if self._voice.asks and self._asked is None and self._sent > self._acked and not self._is_over():
            self._asked = self._sent
            self._outbound.send(encode("system", "ping", {"ts": int(self._rooms.clock.now() * 1000)}))
