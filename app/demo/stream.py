"""The way of an answer's events to whoever listens.

The turn writes into an Outlet and never waits for the reader; the HTTP response empties it. When the
reader leaves, the turn runs on and what it writes is dropped, as in Hermes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

if TYPE_CHECKING:
    from app.demo.agent import Agent

ROOM = 64  # events a bench may run ahead of its reader
SPLIT_BYTES = 7  # odd and small, so that it falls into characters of 2, 3 and 4 bytes
KEEPALIVE = b": keepalive\n\n"


class Outlet:
    """Encoded events between one turn and at most one reader."""

    def __init__(self, *, split: bool = False) -> None:
        self._chunks: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._emptied = asyncio.Event()
        self._split = split
        self._when_left_early: Callable[[], None] = lambda: None
        self.left = False
        self.ended = False
        self.cut = False

    def write(self, chunk: bytes) -> None:
        if not self.left:
            self._chunks.append(chunk)
            self._wake.set()

    def end(self) -> None:
        """No more events: the response is complete."""
        self.ended = True
        self._wake.set()

    def hang_up(self) -> None:
        """Drop the connection after what has been written; later events go nowhere."""
        self.cut = True
        self.end()

    def when_left_early(self, callback: Callable[[], None]) -> None:
        self._when_left_early = callback

    def leave_early(self) -> None:
        """The reader hung up before the end."""
        self.leave()
        self._when_left_early()

    def leave(self) -> None:
        """The reader is gone."""
        self.left = True
        self._chunks.clear()
        self._wake.set()
        self._emptied.set()

    @property
    def all_sent(self) -> bool:
        return self.ended and not self._chunks

    async def room(self) -> None:
        """Wait until the reader is not far behind; always lets others run."""
        if self.left or len(self._chunks) < ROOM:
            await asyncio.sleep(0)
            return
        self._emptied.clear()
        await self._emptied.wait()

    async def drain(self, send: Send, keepalive_s: float) -> None:
        """Send every event as a chunk of its own until the end, or until the reader leaves."""
        while not self.left:
            while self._chunks:
                for piece in self._pieces(self._chunks.popleft()):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._emptied.set()
            if self.ended:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(keepalive_s):
                    await self._wake.wait()
            except TimeoutError:
                self.write(KEEPALIVE)

    def _pieces(self, chunk: bytes) -> Iterable[bytes]:
        if not self._split:
            return (chunk,)
        return (chunk[at : at + SPLIT_BYTES] for at in range(0, len(chunk), SPLIT_BYTES))


class EventStream(Response):
    """A response that streams an Outlet and, where the script says so, drops the connection."""

    def __init__(self, agent: Agent, outlet: Outlet, headers: dict[str, str]) -> None:
        self.status_code = 200
        self.background = None
        self._agent = agent
        self._outlet = outlet
        fixed = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
        # Session ids may hold any character; Hermes sends them as UTF-8.
        self.raw_headers = [(name.encode(), value.encode()) for name, value in (fixed | headers).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outlet, agent = self._outlet, self._agent
        agent.open += 1
        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(self._watch(receive))
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await outlet.drain(send, agent.keepalive_s)
                if outlet.cut and not outlet.left:
                    scope["extensions"]["stand_in"]["hang_up"]()
                    await watcher
                watcher.cancel()
            if not outlet.left:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            outlet.leave()
            agent.open -= 1
            agent.changed()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not self._outlet.all_sent and not self._outlet.cut:
            self._agent.aborted += 1
            self._outlet.leave_early()
        self._outlet.leave()
