"""One open link as the rooms above see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from app.wire.payloads import Supports

Grants = Mapping[str, float | None]  # name → expiry in Unix seconds, None = never


class Peer(Protocol):
    """Who is at the other end, and the two ways to send to it.

    `send` is for what may not be dropped (answers, kept frames): it always queues, and a reader so slow that the
    oldest such frame gets 10 s old is evicted. `offer` is for what can be sent again as a whole (stream events):
    False means the queue is over its bound and nothing was queued; ask `when_drained` to be called back.
    """

    @property
    def link_id(self) -> int: ...
    @property
    def device_id(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def instance(self) -> str | None: ...
    @property
    def supports(self) -> Supports: ...
    @property
    def grants(self) -> Grants: ...
    @property
    def closed(self) -> bool: ...
    @property
    def queued(self) -> int:
        """Bytes that wait for the transport to take them: a producer that can wait lets its next frame wait instead."""

    def send(self, frame: bytes) -> None: ...
    def offer(self, frame: bytes) -> bool: ...
    def when_drained(self, callback: Callable[[], None]) -> None:
        """Once, on the loop, when the queue is empty again. Never after the link has closed."""

    def when_closed(self, callback: Callable[[bool], None]) -> None:
        """Once; the argument says whether the client closed cleanly (1000 or 1001)."""

    def ring(self) -> None:
        """Something was kept for this device."""

    def acknowledge(self, epoch: str, seq: int) -> None:
        """The client has everything up to `seq`."""

    def replay(self, after: int | None) -> None:
        """Send what was kept after `after` (default: after the last ack) again, then `synced`."""

    def pong(self) -> None:
        """A client that cannot acknowledge has read our last ping."""

    async def subscribe(self) -> None:
        """For a client that cannot acknowledge: from the next `ring` on it gets messages, those that wait first."""

    def unsubscribe(self) -> None: ...

    @property
    def listens(self) -> bool:
        """What is kept for its device is being sent to it."""

    def regrant(self, grants: Grants) -> None:
        """The session's grants have changed."""

    def end(self, code: int, reason: str) -> None:
        """Close the link; returns at once."""


def granted(grants: Grants, name: str | None, now: float) -> bool:
    if name is None:
        return True
    expiry = grants.get(name, 0.0)
    return expiry is None or now < expiry
