"""One connection to Hermes' API server: HTTP/1.1, one exchange at a time, and nothing of a body kept but what waits.

Answers are parsed in the read callback and read by one task; when that falls behind, reading stops, and so does Hermes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

import httptools

from app.errors import RelayError
from app.hermes.errors import StreamBroken, UpstreamInvalid, UpstreamTimeout, UpstreamUnanswered
from app.hermes.passing.headers import Headers

HIGH_WATER = 256 * 1024  # bytes of an answer that wait for their reader before Hermes has to
MAX_HEAD = 64 * 1024  # bytes of an answer without any of its body, as headers and trailers are: the parser takes any
WRITE_S = 60.0  # for Hermes to take more of a request
LAST_STATUS = 599
NO_BODY = (204, 304)


@dataclass(frozen=True, slots=True)
class Head:
    """Names of headers are in lower case."""

    status: int
    headers: Headers


class Connection(asyncio.Protocol):
    """`begin`, `write` what the request has of a body, `head`, then `read` to the end; `abort` at any time.

    Every failure is told to whoever waits; the first one stays.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._waiting: asyncio.Future[None] | None = None  # who reads
        self._blocked: asyncio.Future[None] | None = None  # who writes
        self._timer: asyncio.TimerHandle | None = None
        self._write_paused = self._read_paused = False
        self._error: RelayError | None = None
        self.is_lost = False
        self.is_sent = False  # all of the request has been written
        self.used = 0  # exchanges so far

    # an exchange

    def begin(self, request: bytes, *, whole: bool, bodiless: bool, answer_s: float) -> None:
        """`whole`: nothing follows `request`; else `is_sent` is to be set when all has been written.

        `bodiless`: whatever the answer's headers say, no body follows them, as to HEAD.
        """
        self.used += 1
        self.is_sent = whole
        self._bodiless = bodiless
        self._parser = httptools.HttpResponseParser(self)
        self._head: Head | None = None
        self._headers: Headers = []
        self._bodiless_bytes = 0  # since the last that was of the body
        self._parts: list[bytes] = []
        self._size = 0
        self._complete = self._to_the_end = self._keeps_alive = False
        self._surplus = False
        self._silence_s, self._heard_at = answer_s, self._loop.time()
        self._timer = self._loop.call_later(answer_s, self._check_silence)
        assert self._transport is not None
        if self.is_lost:  # after it was taken, and before this
            self._error = UpstreamUnanswered(detail="closed by Hermes")
        else:
            self._transport.write(request)

    async def write(self, data: bytes) -> None:
        """Raises what ended the exchange, UpstreamTimeout."""
        if self._error is not None:
            raise self._error
        assert self._transport is not None
        self._transport.write(data)
        self._heard_at = self._loop.time()
        if self._write_paused:
            self._blocked = self._loop.create_future()
            try:
                async with asyncio.timeout(WRITE_S):
                    await self._blocked
            except TimeoutError:
                self.fail(UpstreamTimeout("Hermes does not take the request in time"))
        if self._error is not None:
            raise self._error

    async def head(self) -> Head:
        """Raises UpstreamUnanswered, UpstreamTimeout, UpstreamInvalid, or what `fail` was given."""
        while self._head is None:
            if self._error is not None:
                raise self._error
            await self._news()
        return self._head

    async def read(self) -> bytes:
        """What has come of the body; b"" at its end. Raises StreamBroken, UpstreamInvalid, or what `fail` was given."""
        while not self._parts:
            if self._complete:
                return b""
            if self._error is not None:
                raise self._error
            await self._news()
        parts, self._parts, self._size = self._parts, [], 0
        if self._read_paused:
            self._read_paused = False
            self._heard_at = self._loop.time()
            assert self._transport is not None
            self._transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def is_over(self) -> bool:
        """All of the body has been read."""
        return self._complete and not self._parts

    def expect(self, silence_s: float) -> None:
        """From here on, how long Hermes may say nothing while it is listened to."""
        if not self._complete:
            self._stop_timer()
            self._silence_s = silence_s
            self._timer = self._loop.call_later(silence_s, self._check_silence)

    def finish(self) -> bool:
        """The exchange is over. True: the connection is fit for another. One that was answered before all of its
        request was sent is not: the next request would be read as the rest of this one.
        """
        self._stop_timer()
        if self._parser is None:  # it never began
            return False
        self._parser = None
        is_odd = not self.is_sent or self._surplus or self._error or self.is_lost or self._write_paused
        return self.is_over and self._keeps_alive and not is_odd

    def fail(self, error: RelayError) -> None:
        """End the exchange for whoever waits for it; does nothing to one that is complete."""
        if self._error is None and not self._complete:
            self._error = error
        self._wake()
        self.abort()

    def abort(self) -> None:
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    async def _news(self) -> None:
        self._waiting = self._loop.create_future()
        await self._waiting

    def _wake(self) -> None:
        for future in (self._waiting, self._blocked):
            if future is not None and not future.done():
                future.set_result(None)

    def _check_silence(self) -> None:
        left = self._heard_at + self._silence_s - self._loop.time()
        if self._read_paused:  # it is not Hermes who is slow
            left = self._silence_s
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_silence)
        else:
            self.fail(UpstreamTimeout() if self._head is None else StreamBroken("Hermes went silent"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by their methods only, not by their class
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:  # nobody asked for it, so nobody could tell what it answers
            self.is_lost = True
            self.abort()
            return
        self._heard_at = self._loop.time()
        self._bodiless_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self.fail(UpstreamInvalid(detail=type(exc).__name__))
            return
        if self._bodiless_bytes > MAX_HEAD and not self._complete:
            self.fail(UpstreamInvalid("Hermes' answer has headers without end"))
            return
        if self._size > HIGH_WATER and not self._read_paused:
            self._read_paused = True
            assert self._transport is not None
            self._transport.pause_reading()
        if self._waiting is not None:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._stop_timer()
        if self._parser is not None:
            if self._to_the_end and exc is None and self._error is None:
                self._complete = True
            elif not self._complete and self._error is None:
                cause = type(exc).__name__ if exc else "closed by Hermes"
                self._error = (UpstreamUnanswered if self._head is None else StreamBroken)(detail=cause)
        self._wake()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._blocked is not None and not self._blocked.done():
            self._blocked.set_result(None)

    # httptools

    def on_message_begin(self) -> None:
        self._surplus = self._surplus or self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # what comes after is trailers: they are no headers
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:  # on its way; Hermes was not asked to change protocols
            self._headers = []
            return
        if status > LAST_STATUS:
            raise ValueError(status)
        names = {name for name, _ in self._headers}
        self._to_the_end = not names & {b"content-length", b"transfer-encoding"} and status not in NO_BODY
        self._complete = self._bodiless
        # After HEAD some servers send a body all the same: such a connection is not used again.
        self._keeps_alive = not self._bodiless and self._parser.should_keep_alive()
        self._head = Head(status, self._headers)

    def on_body(self, part: bytes) -> None:
        self._bodiless_bytes = 0
        if not self._complete:
            self._parts.append(part)
            self._size += len(part)

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._complete = True
            self._stop_timer()
