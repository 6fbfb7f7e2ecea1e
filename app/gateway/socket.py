"""What the gateway needs of a WebSocket. The API edge adapts the server's to this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Socket(Protocol):
    @property
    def close_code(self) -> int | None:
        """The client's close code, once it has sent one."""

    @property
    def exceeded(self) -> bool:
        """Whether the connection ended because of a message over the limit."""

    def listen(self, message: Callable[[bytes, bool], None]) -> None:
        """From now on call `message(data, is_text)` for each message, straight from the transport's callback."""

    def pause(self) -> None:
        """Stop reading the transport. Messages that were read already still come."""

    def resume(self) -> None: ...

    def write(self, frame: bytes) -> bool:
        """Hand a text frame to the transport. False: its buffer is over the high-water mark, call `drain`."""

    async def drain(self) -> None:
        """Returns when the transport takes more, or is gone."""

    def raise_limit(self, max_message: int) -> None:
        """From now on accept messages up to this many bytes."""

    async def close(self, code: int, reason: str) -> None:
        """Start the closing handshake. Waits behind a stopped reader: follow it with `abort`."""

    async def closed(self) -> None:
        """Returns when the connection is gone."""

    def abort(self) -> None:
        """Drop the connection now."""
