"""Acknowledgements, gathered and stored late: losing one costs a resend, so none is worth a commit of its own."""

from __future__ import annotations

import asyncio
import logging

from app.db import Database, Tx
from app.errors import RelayError
from app.outbox import store
from app.tasks import Supervisor

log = logging.getLogger("talaria.delivery")

GATHER_SECONDS = 0.25
RETRY_SECONDS = 2.0  # after a failed commit, such as on a full disk


class Acks:
    """Bounded by the number of mailboxes: only the highest number of each is kept."""

    def __init__(self, db: Database, tasks: Supervisor) -> None:
        self._db = db
        self._tasks = tasks
        self._waiting: dict[tuple[str, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, device_id: str, epoch: str, seq: int) -> None:
        key = (device_id, epoch)
        if seq > self._waiting.get(key, 0):
            self._waiting[key] = seq
            self._schedule(GATHER_SECONDS)

    def latest(self, device_id: str, epoch: str) -> int:
        """What is not known to be stored yet; 0 if nothing."""
        return self._waiting.get((device_id, epoch), 0)

    async def flush(self) -> None:
        """Store what waits now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = dict(self._waiting)
        if not waiting:
            return

        def work(tx: Tx) -> None:
            for (device_id, epoch), seq in waiting.items():
                store.ack(tx, device_id, epoch, seq)

        try:
            await self._db.write(work)
        except RelayError as exc:
            log.warning("acknowledgements not stored yet", extra={"code": exc.code, "mailboxes": len(waiting)})
            self._schedule(RETRY_SECONDS)
        else:
            # Not before: a phone that comes back meanwhile must not get what it has acknowledged.
            self._waiting = {key: seq for key, seq in self._waiting.items() if seq > waiting.get(key, 0)}

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
