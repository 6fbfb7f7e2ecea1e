"""Wakes a device that is asked for something now: a push about no frame, which is of no use once the time is over."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from app.clock import Clock
from app.db import Database
from app.push import store
from app.push.dispatcher import Dispatcher
from app.push.notice import of_wake
from app.push.provider import Target
from app.tasks import Supervisor

log = logging.getLogger("talaria.push")

AGAIN_S = 10.0  # so long a push that went out may take to bring the device
MOST = (20, 3600.0)  # pushes for one device in so many seconds: each may make a sound


class Wake:
    def __init__(self, db: Database, clock: Clock, tasks: Supervisor, dispatcher: Dispatcher, relay_id: str) -> None:
        self._db, self._clock, self._tasks = db, clock, tasks
        self._dispatcher, self._relay_id = dispatcher, relay_id
        self._sent: dict[str, deque[float]] = {}  # by device, monotonic
        self._looking: dict[str, asyncio.Task[bool]] = {}

    async def __call__(self, device_id: str) -> bool:
        """Whether a push is on its way: now, or since a moment ago. Its owner's quiet hours hold it back."""
        looking = self._looking.get(device_id)
        if looking is None:
            looking = self._looking[device_id] = self._tasks.start(self._wake(device_id), "wake")
            looking.add_done_callback(lambda _: self._looking.pop(device_id, None))
        return await asyncio.shield(looking)

    async def _wake(self, device_id: str) -> bool:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        most, seconds = MOST
        sent = self._sent.setdefault(device_id, deque(maxlen=most))
        if sent and monotonic - sent[-1] < AGAIN_S:
            return True
        if len(sent) == most and monotonic - sent[0] < seconds:
            log.warning("a device is woken too often", extra={"device": device_id})
            return False
        targets, wishes = await self._db.read(
            lambda tx: (store.active(tx, device_id, now), store.preferences(tx, device_id))
        )
        quiet = wishes.quiet is not None and wishes.quiet.until(now) is not None
        if not targets or wishes.silent or quiet:
            return False
        sent.append(monotonic)
        self._tasks.start(self._push(targets, f"wake/{device_id}/{now}"), "wake push")
        return True

    async def _push(self, targets: list[Target], nonce: str) -> None:
        notice = of_wake(self._relay_id, nonce)
        await asyncio.gather(*(self._dispatcher.push(target, notice) for target in targets))
