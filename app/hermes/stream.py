"""One request whose answer is a stream of events: HTTP/1.1 on a connection of its own.

Events go to the sink in the read callback itself: no task is woken for them (deploy/decisions/0004).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

import httptools

from app.errors import RelayError
from app.hermes.errors import StreamBroken, UpstreamInvalid, refusal_of, unreached
from app.hermes.listener import Listener
from app.hermes.routes import Route, trust
from app.wire.sse import SseEvent, SseSplitter

Sink = Callable[[list[SseEvent]], None]

CONNECT_S = 5.0
SILENCE_S = 120.0  # Hermes sends a comment after 30 s without events; noticed within twice this
READ_BYTES = 64 * 1024  # bounds how long one busy stream holds the loop
MAX_REFUSAL = 64 * 1024  # bytes read of an answer that is no stream
MAX_HEAD = 64 * 1024  # bytes before the answer's status and headers are whole: the parser itself has no limit


async def post_events(
    route: Route, path: str, body: bytes, sink: Sink, *, opened: Callable[[], None],
    headers: Mapping[str, str] | None = None, silence_s: float = SILENCE_S, listener: Listener | None = None,
) -> None:  # fmt: skip
    """Returns when the answer is complete. `opened` is called once Hermes has accepted. `listener` hears the answer as
    it comes, a refusing one too, and that it is whole.

    Raises UpstreamUnreachable if nothing was sent, the error of a refusing status, StreamBroken if the answer broke
    off, UpstreamInvalid if it is no stream of events, and whatever the sink raises.
    """
    described = {"Content-Type": "application/json", "Content-Length": str(len(body))} | dict(headers or {})
    request = _request(route, "POST", path, described) + body
    await _exchange(route, request, sink, opened, silence_s, listener)


async def get_events(
    route: Route, path: str, sink: Sink, *, opened: Callable[[], None], silence_s: float = SILENCE_S
) -> None:
    """As `post_events`, of a stream that is there already."""
    await _exchange(route, _request(route, "GET", path, {}), sink, opened, silence_s)


async def _exchange(
    route: Route, request: bytes, sink: Sink, opened: Callable[[], None], silence_s: float,
    listener: Listener | None = None,
) -> None:  # fmt: skip
    exchange = _Exchange(request, sink, opened, silence_s, listener)
    try:
        await _connect(route, exchange)
        await exchange.ended
    finally:
        exchange.close()


async def _connect(route: Route, exchange: _Exchange) -> None:
    try:
        async with asyncio.timeout(CONNECT_S):
            await asyncio.get_running_loop().create_connection(
                lambda: exchange, route.host, route.port, ssl=trust() if route.tls else None
            )
    except TimeoutError as exc:
        if exchange.is_sent:  # by a loop that was too busy to notice
            return
        raise unreached(exc) from exc
    except OSError as exc:
        raise unreached(exc) from exc


def _request(route: Route, method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """Head of a request. The values of `headers` have no line breaks: that is for who gives them to see to."""
    all_headers: Mapping[str, str] = {
        "Host": route.host_header,
        "User-Agent": "talaria",
        "Accept": "text/event-stream",
        "Connection": "close",
    } | {**headers, **route.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return f"{method} {route.prefix}{path} HTTP/1.1\r\n{lines}\r\n".encode()


class _Exchange(asyncio.BufferedProtocol):
    """One request and its answer. `ended` says how it went."""

    def __init__(
        self, request: bytes, sink: Sink, opened: Callable[[], None], silence_s: float, listener: Listener | None
    ) -> None:  # fmt: skip
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._request, self._sink, self._opened = request, sink, opened
        self._silence_s, self._listener = silence_s, listener
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._parser = httptools.HttpResponseParser(self)
        self._events = SseSplitter()
        self._parts: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._all_headers: list[tuple[bytes, bytes]] = []  # as they came, for the listener
        self._status = 0
        self._heard = False
        self._head = 0  # bytes read before the headers were whole
        self._accepted = False
        self._complete = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_sent(self) -> bool:
        """Hermes may have the request."""
        return self._transport is not None

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by their methods only, not by their class
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)
        self._watch_silence()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        if self.ended.done():
            return
        try:
            self._parser.feed_data(self._buffer[:nbytes])
            if not self._accepted:
                self._await_head(nbytes)
            if self._parts:
                self._take(b"".join(self._parts) if len(self._parts) > 1 else self._parts[0])
            if self._complete:
                if self._listener is not None:
                    self._listener.ended()
                self._end(None if self._status == 200 else self._refusal())
        except httptools.HttpParserError as exc:
            self._end(UpstreamInvalid(detail=type(exc).__name__))
        except Exception as exc:  # the sink's too: it belongs to who waits, not to the event loop
            self._end(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(StreamBroken(detail=type(exc).__name__ if exc else "closed by Hermes"))

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value
        if self._listener is not None:
            self._all_headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._listener is not None and self._status >= 200:
            self._listener.begins(self._status, self._all_headers)
        self._all_headers = []

    def on_body(self, part: bytes) -> None:
        if self._listener is not None:
            self._listener.hears(part)
        self._parts.append(part)

    def on_message_complete(self) -> None:
        self._complete = self._status >= 200

    # ours

    def _await_head(self, nbytes: int) -> None:
        self._head += nbytes
        if self._status >= 200:
            self._accept()
        elif self._head > MAX_HEAD:
            raise UpstreamInvalid("Hermes' answer has headers without end")

    def _accept(self) -> None:
        self._accepted = True
        if self._status == 200:
            if not self._headers.get(b"content-type", b"").startswith(b"text/event-stream"):
                raise UpstreamInvalid("Hermes answered with no stream of events")
            self._opened()

    def _take(self, chunk: bytes) -> None:
        if self._status != 200:
            self._parts[:] = [chunk[:MAX_REFUSAL]]
            self._complete = self._complete or len(chunk) >= MAX_REFUSAL
            return
        self._parts.clear()
        if events := self._events.feed(chunk):
            self._sink(events)

    def _refusal(self) -> RelayError:
        retry_after = self._headers.get(b"retry-after", b"").decode("latin-1")
        return refusal_of(self._status, b"".join(self._parts), retry_after)

    def _watch_silence(self) -> None:
        self._timer = self._loop.call_later(self._silence_s, self._check_silence)

    def _check_silence(self) -> None:
        if not self._heard:
            self._end(StreamBroken("Hermes went silent"))
            return
        self._heard = False
        self._watch_silence()

    def _end(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)
            self.ended.exception()  # looked at: who waited may have been cancelled
