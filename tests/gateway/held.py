"""A database whose writer is busy, for as long as a test needs that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.relay import RunningRelay


@asynccontextmanager
async def held_writer(relay: RunningRelay) -> AsyncIterator[Callable[[], None]]:
    """What is written waits until the block ends, or until what it yields is called."""
    release = threading.Event()
    work = asyncio.ensure_future(relay.relay.db.write(lambda tx: release.wait()))
    try:
        yield release.set
    finally:
        release.set()
        await work
