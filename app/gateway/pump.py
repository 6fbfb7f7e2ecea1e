"""Sends a device what was kept for it.

One loop for what it missed and for what comes, so that nothing doubles or reorders.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from app.db import Database, Tx
from app.delivery.acks import Acks
from app.errors import RelayError
from app.gateway.outbound import Outbound
from app.outbox import store
from app.outbox.store import Kept, Mailbox
from app.tasks import Supervisor
from app.wire.envelope import encode
from app.wire.payloads import Resume

log = logging.getLogger("talaria.gateway")

PAGE = 64  # frames read at once
RETRY_SECONDS = 2.0  # when the database could not be read


@dataclass(frozen=True, slots=True)
class Position:
    """Where a link begins. `reset` says why it is not where the client asked to."""

    epoch: str
    after: int
    head: int
    reset: str | None = None


def locate(tx: Tx, device_id: str, box: Mailbox, acked: int, resume: Resume | None) -> Position:
    """`acked` is the highest acknowledgement known, stored or not."""
    acked = max(box.acked, acked)
    if resume is None or resume.epoch is None or resume.after is None:
        return Position(box.epoch, acked, box.head)
    if resume.epoch != box.epoch:
        return Position(box.epoch, acked, box.head, "epoch_changed")
    if resume.after > box.head:
        return Position(box.epoch, acked, box.head, "rolled_back")
    if resume.id is not None and resume.after > 0 and store.id_at(tx, device_id, resume.after) != resume.id:
        return Position(box.epoch, min(acked, resume.after), box.head, "rolled_back")
    return Position(box.epoch, resume.after, box.head)


def envelope(frame: Kept) -> bytes:
    """The stored payload is JSON already; only the envelope is put around it."""
    head = encode(frame.channel, frame.type, {}, id=frame.id)
    return head[: -len(b"{}}")] + frame.body + b',"seq":' + str(frame.seq).encode() + b"}"


class Pump:
    """For one link of a device whose client acknowledges."""

    def __init__(
        self, device_id: str, start: Position, *,
        db: Database, outbound: Outbound, acks: Acks, tasks: Supervisor, caught_up: Callable[[], None],
    ) -> None:  # fmt: skip
        self._device_id = device_id
        self._epoch = start.epoch
        self._cursor = start.after
        self._acked = 0
        self._sent = start.after  # the highest number this link was sent: an ack beyond it is nonsense
        self._db, self._outbound, self._acks, self._tasks = db, outbound, acks, tasks
        self._caught_up = caught_up
        self._tell_synced = True
        self._rung = False
        self._task: asyncio.Task[None] | None = None
        if start.reset is not None:
            payload = {"epoch": start.epoch, "after": start.after, "head": start.head, "reason": start.reset}
            outbound.send(encode("system", "reset", payload))
        self.acknowledge(start.epoch, start.after)

    def ring(self) -> None:
        self._rung = True
        if (self._task is None or self._task.done()) and not self._outbound.closed:
            self._task = self._tasks.start(self._run(), "pump")

    def acknowledge(self, epoch: str, seq: int) -> None:
        seq = min(seq, self._sent)
        if epoch == self._epoch and seq > self._acked:
            self._acked = seq
            self._acks.add(self._device_id, epoch, seq)

    def replay(self, after: int | None) -> None:
        """Go back (or on) to `after` and say so when caught up."""
        self._cursor = min(self._acked if after is None else after, self._sent)
        self._tell_synced = True
        self.ring()

    async def _run(self) -> None:
        while self._rung and not self._outbound.closed:
            self._rung = False
            try:
                while await self._send_page():
                    pass
            except RelayError as exc:
                log.error("a mailbox could not be read", extra={"code": exc.code, "reason": exc.detail})
                await asyncio.sleep(RETRY_SECONDS)
                self._rung = True

    async def _send_page(self) -> bool:
        """True if there may be more."""
        await self._outbound.room()
        cursor = self._cursor
        frames = await self._db.read(lambda tx: store.after(tx, self._device_id, cursor, PAGE))
        if cursor != self._cursor:
            return True  # a replay was asked for meanwhile: this page is another place
        for frame in frames:
            await self._outbound.room()
            if self._outbound.closed or cursor != self._cursor:
                return False
            self._outbound.send(envelope(frame))
            self._cursor = cursor = frame.seq
            self._sent = max(self._sent, frame.seq)
        if len(frames) == PAGE:
            return True
        if self._tell_synced:
            self._tell_synced = False
            self._outbound.send(encode("system", "synced", {"epoch": self._epoch, "head": self._cursor}))
            self._caught_up()
        return False
