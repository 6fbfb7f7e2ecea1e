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
        self._timer: asyncio.TimerHandle | None = None

    def add(self, device_id: str, epoch: str, seq: int) -> None:
        """The device has everything up to `seq`."""
        self._note(self._acked, device_id, epoch, seq)

    def sent(self, device_id: str, epoch: str, seq: int) -> None:
        """Everything up to `seq` was written to a socket of the device."""
        self._note(self._sent, device_id, epoch, seq)

    def latest(self, device_id: str, epoch: str) -> int:
        """The highest acknowledgement that is not stored yet; 0 if there is none."""
        return self._acked.get((device_id, epoch), 0)

    async def flush(self) -> None:
        """Store what waits now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        acked, sent = self._acked, self._sent
        self._acked, self._sent = {}, {}
        if not acked and not sent:
            return

        def work(tx: Tx) -> None:
            for (device_id, epoch), seq in sent.items():
                if seq > acked.get((device_id, epoch), 0):
                    store.mark_sent(tx, device_id, epoch, seq)
            for (device_id, epoch), seq in acked.items():
                store.ack(tx, device_id, epoch, seq)

        try:
            await self._db.write(work)
        except RelayError as exc:
            log.warning("acknowledgements not stored yet", extra={"code": exc.code, "mailboxes": len(acked)})
            for (device_id, epoch), seq in acked.items():
                self._note(self._acked, device_id, epoch, seq, RETRY_S)

    def _note(self, marks: Marks, device_id: str, epoch: str, seq: int, delay: float = GATHER_S) -> None:
        if seq > marks.get((device_id, epoch), 0):
            marks[device_id, epoch] = seq
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        self._tasks.start(self.flush(), "acks")

    async def close(self) -> None:
        await self.flush()
        if self._timer is not None:
            self._timer.cancel()
