"""Writes one after the other, in the order in which they were given, until the database has taken them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.clock import Sleep
from app.db import Database, Tx
from app.errors import Overloaded, RelayError, StorageFailed, StorageFull
from app.tasks import Supervisor

log = logging.getLogger("talaria.approvals")

AGAIN_S = (1.0, 30.0)  # first and longest pause before another try
MAX_ENTRIES = 2048  # some for each ask that may be open, and as many again while a full disk takes none

Work = Callable[[Tx], Any]


def _always() -> bool:
    return True


def _ignored() -> None: ...


@dataclass(slots=True)
class _Entry:
    work: Work
    tried: asyncio.Future[Any]  # after the first try, whatever came of it
    tries: int | None
    wanted: Callable[[], bool]
    stored: Callable[[], None]
    lost: Callable[[], None]


class Ledger:
    """At most MAX_ENTRIES wait: who gives more than that looks at `full` before."""

    def __init__(self, db: Database, tasks: Supervisor, sleep: Sleep) -> None:
        self._db, self._tasks, self._sleep = db, tasks, sleep
        self._waiting: deque[_Entry] = deque()
        self._task: asyncio.Task[None] | None = None
        self._trouble: RelayError | None = None  # of the last try, as long as anything waits

    @property
    def full(self) -> bool:
        return len(self._waiting) >= MAX_ENTRIES

    def put(
        self, work: Work, *, tries: int | None = None, wanted: Callable[[], bool] = _always,
        stored: Callable[[], None] = _ignored, lost: Callable[[], None] = _ignored,
    ) -> asyncio.Future[Any]:  # fmt: skip
        """Until it is stored, or `tries` times; not at all if it is not `wanted` any more when its turn comes.

        The future ends with the first try and never fails.
        """
        tried: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Entry(work, tried, tries, wanted, stored, lost))
        self._begin()
        return tried

    async def write(self, work: Work) -> Any:
        """Once, behind what was given before. Raises what the work raises, and at once what fails the entry ahead."""
        if self._trouble is not None:
            raise self._trouble
        failure: list[RelayError] = []
        answer: list[Any] = []

        def run(tx: Tx) -> Any:
            result = work(tx)
            tx.after_commit(lambda: answer.append(result))
            return result

        await self.put(run, tries=1, lost=lambda: failure.append(self._trouble or StorageFailed()))
        if failure:
            raise failure[0]
        return answer[0]

    async def settled(self) -> None:
        """Everything given so far is stored, or the database takes nothing now."""
        while self._waiting and self._trouble is None:
            await asyncio.shield(self._waiting[-1].tried)

    def close(self) -> None:
        """What is not stored yet will be found as it was by the next start."""
        if self._task is not None:
            self._task.cancel()
        for entry in self._waiting:
            entry.tried.cancel()
        self._waiting.clear()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._run(), "approvals ledger")

    async def _run(self) -> None:
        pause, count = AGAIN_S[0], 0
        while self._waiting:
            entry = self._waiting[0]
            count += 1
            done = not entry.wanted() or await self._try(entry, last=count == entry.tries)
            if not entry.tried.done():
                entry.tried.set_result(None)
            if done:
                self._waiting.popleft()
                pause, count = AGAIN_S[0], 0
            else:
                await self._sleep(pause)
                pause = min(pause * 2, AGAIN_S[1])
        self._trouble = None

    async def _try(self, entry: _Entry, *, last: bool) -> bool:
        """Whether it needs no other try."""
        try:
            await self._db.write(entry.work)
        except (StorageFull, StorageFailed, Overloaded) as exc:
            self._trouble = exc
            log.error("an approval or question cannot be stored", extra={"code": exc.code})
            if last:
                entry.lost()
            return last
        except Exception:
            log.exception("storing an approval or question failed in the relay")
            entry.lost()
            return True
        self._trouble = None
        entry.stored()
        return True
