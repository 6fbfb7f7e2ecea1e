"""Notifications of phones: gathered as they come, stored a few times a second, read newest first."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.channels import store
from app.channels.store import Notification
from app.clock import Clock
from app.db import Database, Tx
from app.errors import RelayError
from app.settings import NotificationSettings
from app.tasks import Supervisor
from app.wire.notifications import MAX_LIMIT, NotificationPosted

log = logging.getLogger("talaria.notifications")

GATHER_S = 0.25
RETRY_S = 2.0  # after a failed commit, such as on a full disk
MAX_WAITING = 256  # changes of one device between two commits: about what a phone shows at once, twice over


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one notification since the last commit: posted, removed, or posted and removed."""

    number: int  # the order in which they came, whatever the device
    device_id: str
    key: str
    post: NotificationPosted | None
    received_at: float
    removed_at: float | None


class PhoneNotifications:
    """Bound to the event loop. A device that changes more than MAX_WAITING between two commits loses its oldest ones.

    What waits for its commit is lost if the process is killed: nobody was told that it is stored.
    """

    def __init__(self, settings: NotificationSettings, *, db: Database, clock: Clock, tasks: Supervisor) -> None:
        self._db, self._clock, self._tasks = db, clock, tasks
        self._allow, self._block = (_patterns(names) for names in (
            settings.notifications_allow, settings.notifications_block,
        ))  # fmt: skip
        self._max_age, self._max_count = settings.notifications_max_age, settings.notifications_max_count
        self._numbers = itertools.count(1)
        self._waiting: dict[str, dict[str, Change]] = {}  # by device and key, the oldest first
        self.dropped = 0  # since the start
        self._told = 0  # of these, in the log
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def recover(self) -> None:
        """Before serving: what the settings no longer allow is forgotten."""

        def work(tx: Tx) -> None:
            for package in store.packages(tx):
                if not self.is_allowed(package):
                    store.forget_package(tx, package)

        if self._allow or self._block:
            await self._db.write(work)

    def is_allowed(self, package: str) -> bool:
        name = package.strip().casefold()
        return not _matches(name, self._block) and (not self._allow or _matches(name, self._allow))

    # what phones say: no await, however fast it comes

    def posted(self, device_id: str, said: NotificationPosted) -> None:
        if self.is_allowed(said.package_name):
            self._add(Change(next(self._numbers), device_id, said.key, said, self._clock.now(), None))
            self._schedule(GATHER_S)

    def removed(self, device_id: str, key: str) -> None:
        now = self._clock.now()
        self._add(Change(next(self._numbers), device_id, key, None, now, now))
        self._schedule(GATHER_S)

    def _add(self, change: Change) -> None:
        waiting = self._waiting.setdefault(change.device_id, {})
        before = waiting.pop(change.key, None)
        if change.post is None and before is not None:
            change = replace(before, removed_at=before.removed_at or change.removed_at)
        waiting[change.key] = change
        if len(waiting) > MAX_WAITING:
            del waiting[next(iter(waiting))]
            self.dropped += 1

    # storing

    def _schedule(self, delay: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._waiting:
            self._begin()

    def _begin(self) -> asyncio.Task[None]:
        if self._writing is None:
            self._writing = self._tasks.start(self._write(), "notifications")
        return self._writing

    async def flush(self) -> None:
        """Store what has come so far. A failure is logged, and tried again later."""
        if self._writing is not None:  # it may have begun before the newest came
            await asyncio.shield(self._writing)
        if self._waiting:
            await asyncio.shield(self._begin())

    async def _write(self) -> None:
        waiting, self._waiting = self._waiting, {}
        changes = _in_order(waiting)
        if self.dropped > self._told:
            log.warning("notifications came faster than they are stored", extra={"dropped": self.dropped - self._told})
            self._told = self.dropped
        try:
            await self._db.write(lambda tx: self._store(tx, changes))
        except RelayError as exc:
            log.warning("notifications not stored yet", extra={"code": exc.code, "waiting": len(changes)})
            newer, self._waiting = self._waiting, {}
            for change in [*changes, *_in_order(newer)]:
                self._add(change)
            self._schedule(RETRY_S)
        finally:
            self._writing = None

    def _store(self, tx: Tx, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.post is not None:
                store.post(tx, change.device_id, change.post, change.received_at)
            if change.removed_at is not None:
                store.remove(tx, change.device_id, change.key, change.removed_at)
        for device_id in {change.device_id for change in changes}:
            store.trim(tx, device_id, self._max_count)

    # reading

    async def recent(
        self, limit: int = MAX_LIMIT, *, before: int | None = None, device_id: str | None = None
    ) -> Sequence[Notification]:
        """The newest of all phones or of one, with what came up to now; at most MAX_LIMIT. Below the row `before`."""
        await self.flush()
        since, limit = self._clock.now() - self._max_age, min(limit, MAX_LIMIT)
        return await self._db.read(
            lambda tx: store.newest(tx, limit, since=since, before=before, device_id=device_id)
        )  # fmt: skip

    async def sweep(self, _: float = 0) -> None:
        """They have an age of their own. Raises StorageFull, StorageFailed."""
        before = self._clock.now() - self._max_age
        while await self._db.write(lambda tx: store.forget_old(tx, before)):
            pass

    async def close(self) -> None:
        await self.flush()
        if self._timer is not None:
            self._timer.cancel()


def _in_order(waiting: dict[str, dict[str, Change]]) -> list[Change]:
    return sorted((one for of_device in waiting.values() for one in of_device.values()), key=lambda one: one.number)


Patterns = tuple[frozenset[str], tuple[str, ...]]  # whole names, and beginnings


def _patterns(names: Sequence[str]) -> Patterns | None:
    """None: there are none. Case does not count: a list that misses its app for it would go unnoticed."""
    folded = [name.casefold() for name in names]
    whole = frozenset(name for name in folded if not name.endswith("*"))
    return (whole, tuple(name[:-1] for name in folded if name.endswith("*"))) if folded else None


def _matches(name: str, patterns: Patterns | None) -> bool:
    return patterns is not None and (name in patterns[0] or name.startswith(patterns[1]))


def as_json(one: Notification) -> dict[str, Any]:
    """As the wire has it; `removed_at` only where it was removed."""
    shown = {
        "package_name": one.package_name, "title": one.title, "text": one.text, "sub_text": one.sub_text,
        "posted_at": one.posted_at, "key": one.key, "device_id": one.device_id, "received_at": one.received_at,
    }  # fmt: skip
    return shown if one.removed_at is None else shown | {"removed_at": one.removed_at}
