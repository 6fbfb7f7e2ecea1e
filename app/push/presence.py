"""Whether the owner is looking at a device right now. It delays that device's wake, and no other's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from app.clock import Clock
from app.db import Database
from app.errors import RelayError
from app.outbox import wakes
from app.tasks import Supervisor

FOREGROUND_S = 60.0  # a client in the foreground says so again within this time; a crash ends it by itself


class Link(Protocol):
    """What is to be known of a socket here; delivery's Peer is one."""

    @property
    def link_id(self) -> int: ...
    @property
    def device_id(self) -> str: ...
    def when_closed(self, callback: Callable[[bool], None]) -> None: ...


class Presence:
    """A device may have several links (windows): it is in the foreground while one of them is.

    A link that breaks leaves the foreground to run out: its owner is still looking, and it comes back. One that is
    closed properly was left.
    """

    def __init__(self, db: Database, clock: Clock, tasks: Supervisor, ring: Callable[[], None]) -> None:
        self._db, self._clock, self._tasks, self._ring = db, clock, tasks, ring
        self._until: dict[str, dict[int, float]] = {}
        self._watched: set[int] = set()  # links whose end we hear of

    async def say(self, link: Link, *, foreground: bool) -> None:
        if foreground and link.link_id not in self._watched:
            self._watched.add(link.link_id)
            link.when_closed(lambda clean: self._closed(link, clean=clean))
        await self._set(link.device_id, link.link_id, foreground=foreground)

    def _closed(self, link: Link, *, clean: bool) -> None:
        self._watched.discard(link.link_id)
        if clean and link.link_id in self._until.get(link.device_id, {}):
            self._tasks.start(self._left(link), "presence")

    async def _left(self, link: Link) -> None:
        with suppress(RelayError):  # then it runs out by itself
            await self._set(link.device_id, link.link_id, foreground=False)

    async def _set(self, device_id: str, link_id: int, *, foreground: bool) -> None:
        now = self._clock.now()
        links = {link: until for link, until in self._until.get(device_id, {}).items() if until > now}
        links.pop(link_id, None)
        if foreground:
            links[link_id] = now + FOREGROUND_S
        self._until[device_id] = links
        if not links:
            del self._until[device_id]
        until = max(links.values(), default=None)
        await self._db.write(lambda tx: wakes.set_foreground(tx, device_id, until, now))
        if until is None:
            self._ring()
