"""Every task has an owner: the supervisor, which names it, logs its failure and ends it at shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

log = logging.getLogger("talaria.tasks")


class Supervisor:
    """Owns background tasks. A task that fails is logged; it never takes the process down."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        if self._closed:
            work.close()
            raise RuntimeError(f"{name} was started after shutdown")
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        # A signal that ends the process is raised in whatever runs then, and leaves the loop by itself: no failure.
        if not task.cancelled() and isinstance(exc := task.exception(), Exception):
            log.error("task failed", extra={"task": task.get_name()}, exc_info=exc)

    async def close(self) -> None:
        """Cancel what still runs and wait for it."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
