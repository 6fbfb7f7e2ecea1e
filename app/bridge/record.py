"""Stores what phones said and were asked, a second late and all at once: it costs no command anything."""

from __future__ import annotations

import asyncio
import logging

import orjson

from app.bridge import store
from app.bridge.activity import MAX_ENTRIES, Activity
from app.bridge.devices import Device, Devices
from app.clock import Sleep
from app.db import Database, Tx
from app.errors import RelayError
from app.tasks import Supervisor

log = logging.getLogger("talaria.bridge")

LATE_S = 1.0


class Record:
    """After a crash the last second may be missing. What the database does not take is tried again with the next."""

    def __init__(
        self, db: Database, tasks: Supervisor, devices: Devices, activity: Activity, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._db, self._tasks, self._sleep = db, tasks, sleep
        self.devices, self.activity = devices, activity
        self._said: dict[str, Device] = {}  # not stored yet
        self._task: asyncio.Task[None] | None = None

    def heard(self, device: Device) -> None:
        self.devices.put(device)
        self._said[device.device_id] = device
        self.touch()

    def touch(self) -> None:
        """There is something to store."""
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._later(), "bridge record")

    async def _later(self) -> None:
        await self._sleep(LATE_S)
        try:
            await self.store()
        except RelayError as exc:
            log.warning("what phones said and did is not stored", extra={"code": exc.code})

    async def store(self) -> None:
        """All that is not stored yet. Raises StorageFull, StorageFailed."""
        said, entries = dict(self._said), list(self.activity.fresh)

        def work(tx: Tx) -> None:
            for device in said.values():
                store.put(tx, device.device_id, device.said)
            if entries:
                store.add(tx, [orjson.dumps(entry) for entry in entries], MAX_ENTRIES)

        await self._db.write(work)
        self._said = {id: device for id, device in self._said.items() if said.get(id) is not device}
        for entry in entries:
            if self.activity.fresh and self.activity.fresh[0] is entry:
                self.activity.fresh.popleft()
