"""One file on its way in: a thread writes a block while the next one comes. At most two are in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from app.media.errors import MediaTooLarge
from app.media.files import Draft
from app.media.sniff import HEAD

BLOCK = 1024 * 1024  # bytes: to change threads costs as much as to write 100 KB

T = TypeVar("T")


class Upload:
    """`add` what comes, then `keep`, and `end` it whatever happens: what is not settled then leaves nothing behind."""

    def __init__(self, draft: Draft, threads: Executor, limit: int) -> None:
        self._draft, self._threads, self._limit = draft, threads, limit
        self._block = bytearray()
        self._writing: asyncio.Future[None] | None = None
        self.head = b""
        self.size = 0  # bytes

    async def add(self, data: bytes) -> None:
        """Raises MediaTooLarge, StorageFull, StorageFailed."""
        self.size += len(data)
        if self.size > self._limit:
            raise MediaTooLarge(f"file too large: at most {self._limit} bytes")
        if len(self.head) < HEAD:
            self.head += data[: HEAD - len(self.head)]
        self._block += data
        if len(self._block) >= BLOCK:
            await self._write()

    async def keep(self, name: str) -> None:
        """On disk under its own name, whole and synced. Raises StorageFull, StorageFailed."""
        await self._write()
        await self._written()
        await self._run(lambda: self._draft.keep(name))

    def settle(self) -> None:
        """It belongs to the store now."""
        self._draft.settle()

    async def end(self) -> None:
        if self._writing is not None:
            self._writing.add_done_callback(_heard)
        try:
            dropping = self._run(self._draft.drop)
        except RuntimeError:  # the store is closed: the relay stops, and cancels who is still at it only afterwards
            self._draft.drop()
        else:
            await asyncio.shield(dropping)

    async def _write(self) -> None:
        await self._written()
        block, self._block = self._block, bytearray()
        self._writing = self._run(lambda: self._draft.write(block))

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)
            self._writing = None

    def _run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work)


def _heard(writing: asyncio.Future[None]) -> None:
    """Whoever waited for it knows, or is gone."""
    if not writing.cancelled():
        writing.exception()
