"""The live sessions that the relay has open in the dashboard, and what it knows of each."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from app.hermes.dashboard.events import Usage

MAX_IDLE = 16  # live sessions without a turn, each an agent in Hermes' memory; beyond it the longest unused is closed

SETTLE_S = 2.0  # a message that Hermes gets before it has put the last turn away is queued behind it


class Live:
    """A conversation in Hermes' memory. `key` is the id under which it is stored, and changes at a compression."""

    __slots__ = ("id", "key", "settled", "turns", "usage")

    def __init__(self, id: str, key: str) -> None:
        self.id = id
        self.key = key
        self.turns = 0  # of ours that run in it
        self.usage = Usage()
        self.settled = asyncio.Event()  # Hermes has put the last turn of ours away
        self.settled.set()

    async def settle(self) -> None:
        """Until Hermes has put the last turn of ours away, for as long as that usually takes."""
        try:
            async with asyncio.timeout(SETTLE_S):
                await self.settled.wait()
        except TimeoutError:
            self.settled.set()  # the news of it went to another client


class Lives:
    """Forgotten when the socket is lost: the dashboard sends their events elsewhere then."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Live] = OrderedDict()  # the longest unused first
        self._by_key: dict[str, Live] = {}

    def add(self, id: str, key: str) -> Live:
        if (live := self._by_id.get(id)) is None:
            live = self._by_id[id] = Live(id, key)
        self.rename(live, key)
        self._by_id.move_to_end(id)
        return live

    def get(self, id: str | None) -> Live | None:
        return self._by_id.get(id) if id is not None else None

    def of(self, key: str) -> Live | None:
        return self._by_key.get(key)

    def rename(self, live: Live, key: str) -> None:
        self._by_key.pop(live.key, None)
        live.key = key
        self._by_key[key] = live

    def discard(self, id: str) -> None:
        if (live := self._by_id.pop(id, None)) is not None and self._by_key.get(live.key) is live:
            del self._by_key[live.key]

    def clear(self) -> None:
        self._by_id.clear()
        self._by_key.clear()

    def used(self, live: Live) -> None:
        if live.id in self._by_id:
            self._by_id.move_to_end(live.id)

    def surplus(self, kept: Live) -> list[Live]:
        """Those to close, so that with `kept` there are not too many."""
        idle = [live for live in self._by_id.values() if not live.turns and live is not kept]
        return idle[: max(0, len(idle) + 1 - MAX_IDLE)]
