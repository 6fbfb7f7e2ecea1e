"""The send queue of one link: what must go in order, bounded, and what happens to a reader that stops.

While the transport takes frames they pass straight through. Behind a full transport they queue: frames that may be
dropped only up to `queue_bytes`, the others always, for their producers are bounded elsewhere (the pump and the worker
wait for room). If the oldest of those gets `stall_seconds` old, the reader is evicted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from app.gateway.limits import Limits
from app.gateway.socket import Socket
from app.tasks import Supervisor

DROPPABLE = float("inf")  # stands where a frame that must go has its deadline


@dataclass(slots=True)
class Traffic:
    """Messages of all links of devices, since the start."""

    received: int = 0
    sent: int = 0


class Outbound:
    def __init__(
        self, socket: Socket, tasks: Supervisor, limits: Limits, traffic: Traffic, evict: Callable[[], None]
    ) -> None:
        self._socket = socket
        self._traffic = traffic
        self._limits = limits
        self._tasks = tasks
        self._evict = evict
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[bytes, float]] = deque()
        self._bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._open_transport = True  # the transport took the last frame without going over its mark
        self._drained: list[Callable[[], None]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self.closed = False

    @property
    def queued(self) -> int:
        return self._bytes

    @property
    def has_room(self) -> bool:
        return self._bytes < self._limits.queue_bytes

    @property
    def idle(self) -> bool:
        return self._open_transport and not self._queue

    def send(self, frame: bytes) -> None:
        """Queue a frame that may not be dropped."""
        if self._open_transport and not self._queue:
            self._write(frame)
        else:
            self._enqueue(frame, self._loop.time() + self._limits.stall_seconds)

    def offer(self, frame: bytes) -> bool:
        """Queue a frame that may be dropped; False if there is no room for it."""
        if self._open_transport and not self._queue:
            self._write(frame)
            return True
        if self._bytes + len(frame) > self._limits.queue_bytes:
            return False
        self._enqueue(frame, DROPPABLE)
        return True

    def when_drained(self, callback: Callable[[], None]) -> None:
        if self.idle:
            self._loop.call_soon(self._call, callback)
        else:
            self._drained.append(callback)

    async def room(self) -> None:
        """Returns when there is room, or the link has closed."""
        if self.has_room or self.closed:
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def close(self) -> None:
        """Nothing is sent any more; whoever waits for room goes on and finds the link closed."""
        self.closed = True
        self._queue.clear()
        self._bytes = 0
        if self._writer is not None:
            self._writer.cancel()
        self._drained.clear()
        self._let_waiters_go()

    async def flush(self) -> None:
        """Returns when everything queued has been handed to the transport, or the link has closed."""
        while not self.idle and not self.closed and self._writer is not None:
            await asyncio.wait([self._writer])

    def _let_waiters_go(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _call(self, callback: Callable[[], None]) -> None:
        if not self.closed:
            callback()

    def _write(self, frame: bytes) -> None:
        if self.closed:
            return
        self._traffic.sent += 1
        if not self._socket.write(frame):
            self._open_transport = False
            self._start()

    def _enqueue(self, frame: bytes, deadline: float) -> None:
        if self.closed:
            return
        self._queue.append((frame, deadline))
        self._bytes += len(frame)

    def _start(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = self._tasks.start(self._drain(), "writer")

    async def _drain(self) -> None:
        while not self.closed:
            if not await self._wait_for_transport():
                self._evict()
                return
            self._open_transport = True
            while self._queue and self._open_transport:
                frame, _ = self._queue.popleft()
                self._bytes -= len(frame)
                self._traffic.sent += 1
                self._open_transport = self._socket.write(frame)
            if self._open_transport:
                self._writer = None  # what the callbacks send may fill the transport again and start another
                self._let_waiters_go()
                callbacks, self._drained = self._drained, []
                for callback in callbacks:
                    callback()
                return

    async def _wait_for_transport(self) -> bool:
        """False when the oldest frame that may not be dropped has waited too long."""
        waiting = self._tasks.start(self._socket.drain(), "drain")
        try:
            while True:
                oldest = min((deadline for _, deadline in self._queue), default=DROPPABLE)
                left = min(oldest - self._loop.time(), self._limits.stall_seconds)
                if left <= 0:
                    return False
                done, _ = await asyncio.wait([waiting], timeout=left)
                if done:
                    return True
        finally:
            waiting.cancel()
