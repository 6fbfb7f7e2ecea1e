"""Who reads the bytes of a turn's stream as Hermes sends them, beside the turn that reads its events."""

from __future__ import annotations

import asyncio

from app.errors import RelayError
from app.hermes.passing.connection import Head
from app.hermes.passing.headers import Headers

MAX_BEHIND = 1024 * 1024  # bytes that wait for a reader; who is further behind is let go
BOUNDARY = b"\n\n"  # between two events


class ListenerBehind(RelayError):
    """You read more slowly than the agent writes: this stream ends here. The turn goes on; read its messages later."""

    code = "listener_behind"
    layer = "device"
    http_status = 503
    retryable = True


class Listener:
    """Nothing that feeds it waits: a turn is not slowed down, and never ended, by who listens."""

    def __init__(self) -> None:
        self._head: Head | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._over = False
        self._error: RelayError | None = None
        self._news = asyncio.Event()

    # what the stream says

    def begins(self, status: int, headers: Headers) -> None:
        if self._head is None and not self._over:
            self._head = Head(status, headers)
            self._news.set()

    def hears(self, part: bytes) -> None:
        if self._over:
            return
        behind = self._size + len(part) > MAX_BEHIND
        # Cut after a whole event; one that is longer than all that may wait is cut anywhere.
        at = part.rfind(BOUNDARY) + len(BOUNDARY) if behind and BOUNDARY in part else len(part)
        self._parts.append(part[:at])
        self._size += at
        if behind and (at < len(part) or part.endswith(BOUNDARY) or self._size > 2 * MAX_BEHIND):
            self.ended(ListenerBehind())
        self._news.set()

    def ended(self, error: RelayError | None = None) -> None:
        """Nothing more will come. The first to say why is right."""
        if not self._over:
            self._over, self._error = True, error
            self._news.set()

    def leave(self) -> None:
        self.ended()
        self._parts.clear()

    # who listens

    async def head(self) -> Head:
        """Raises what kept the turn from being answered."""
        while self._head is None:
            if self._over:
                raise self._error or RelayError("the turn ended without an answer")
            await self._wait()
        return self._head

    async def read(self) -> bytes:
        """What has come since; b"" at the end. Raises what broke the stream off, after all that came before."""
        while not self._parts:
            if self._over:
                if self._error is not None:
                    raise self._error
                return b""
            await self._wait()
        parts, self._parts, self._size = self._parts, [], 0
        return b"".join(parts)

    @property
    def is_over(self) -> bool:
        """All there was has been read, to a good end."""
        return self._over and self._error is None and not self._parts

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()
