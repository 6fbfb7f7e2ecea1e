"""Retention, now and then and in small steps, so that no sender waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from app.clock import Clock
from app.db import Database
from app.delivery import store
from app.errors import RelayError
from app.outbox import retention
from app.outbox.retention import STEP, Retention

log = logging.getLogger("talaria.delivery")

EVERY_S = 600.0


class Sweep:
    """`also` takes out what other rooms have that is older than the time it is given."""

    def __init__(
        self, db: Database, clock: Clock, rules: Retention, also: Sequence[Callable[[float], Awaitable[None]]] = ()
    ) -> None:
        self._db, self._clock, self._rules, self._also = db, clock, rules, also

    async def forever(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.once()
            except RelayError as exc:
                log.warning("retention failed", extra={"code": exc.code})

    async def once(self) -> None:
        now = self._clock.now()
        for device_id, (floor, cut) in (await self._db.read(lambda tx: retention.cuts(tx, self._rules, now))).items():
            for step in [*range(floor + STEP, cut, STEP), cut]:
                await self._db.write(lambda tx, device=device_id, step=step: retention.drop(tx, device, step))  # type: ignore[misc]
        while await self._db.write(lambda tx: retention.sweep(tx, now)):
            pass
        await self._db.write(lambda tx: store.purge(tx, now - self._rules.max_age_s))
        for sweep in self._also:
            await sweep(now - self._rules.max_age_s)
