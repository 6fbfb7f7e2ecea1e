"""Acknowledgements, gathered and stored late: losing one costs a resend, so none is worth a commit of its own."""

from __future__ import annotations

import asyncio
import logging

from app.db import Database, Tx
from app.errors import RelayError
from app.outbox import store
from app.tasks import Supervisor

log = logging.getLogger("talaria.delivery")

GATHER_S = 0.25
RETRY_S = 2.0  # after a failed commit, such as on a full disk

Marks = dict[tuple[str, str], int]  # (device, epoch) → the highest number


class Acks:
    """Only the highest number of each mailbox is kept: acknowledged, and written to a socket."""

    def __init__(self, db: Database, tasks: Supervisor) -> None:
        self._db = db
        self._tasks = tasks
        self._acked: Marks = {}
        self._sent: Marks = {}
        self._void: dict[tuple[str, str, int], str] = {}  # (device, epoch, number) → reason; as many as a page has
        self._timer: asyncio.TimerHandle | None = None

    def add(self, device_id: str, epoch: str, seq: int) -> None:
        """The device has everything up to `seq`."""
        self._note(self._acked, device_id, epoch, seq)

    def sent(self, device_id: str, epoch: str, seq: int) -> None:
        """Everything up to `seq` was written to a socket of the device."""
        self._note(self._sent, device_id, epoch, seq)

    def void(self, device_id: str, epoch: str, seq: int, reason: str) -> None:
        """The device was told that this number is void, before it confirmed it."""
        if seq > self.latest(device_id, epoch):
            self._void[device_id, epoch, seq] = reason
            self._schedule(GATHER_S)

    def latest(self, device_id: str, epoch: str) -> int:
        """The highest acknowledgement that is not stored yet; 0 if there is none."""
        return self._acked.get((device_id, epoch), 0)

    async def flush(self) -> None:
        """Store what waits now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        acked, sent, void = dict(self._acked), dict(self._sent), dict(self._void)
        if not acked and not sent and not void:
            return

        def work(tx: Tx) -> None:
            for (device_id, epoch), seq in sent.items():
                if seq > acked.get((device_id, epoch), 0):
                    store.mark_sent(tx, device_id, epoch, seq)
            for (device_id, epoch, seq), reason in void.items():
                store.mark_void(tx, device_id, epoch, seq, reason)
            for (device_id, epoch), seq in acked.items():
                store.ack(tx, device_id, epoch, seq)

        try:
            await self._db.write(work)
        except RelayError as exc:
            log.warning("acknowledgements not stored yet", extra={"code": exc.code, "mailboxes": len(acked)})
            self._schedule(RETRY_S)
        else:
            # Not before: a phone that comes back meanwhile must not get what it has acknowledged.
            self._acked = _beyond(self._acked, acked)
            self._sent = _beyond(self._sent, sent)
            self._void = {key: reason for key, reason in self._void.items() if key not in void}

    def _note(self, marks: Marks, device_id: str, epoch: str, seq: int) -> None:
        if seq > marks.get((device_id, epoch), 0):
            marks[device_id, epoch] = seq
            self._schedule(GATHER_S)

    def _schedule(self, delay: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        self._tasks.start(self.flush(), "acks")

    async def close(self) -> None:
        await self.flush()
        if self._timer is not None:
            self._timer.cancel()


def _beyond(marks: Marks, stored: Marks) -> Marks:
    return {key: seq for key, seq in marks.items() if seq > stored.get(key, 0)}
