"""One HTTP connection of uvicorn's, with the bounds that it lacks."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.api.edge import SECURITY
from app.api.errors import HeadTooLarge, RequestInvalid, render
from app.errors import RelayError

MAX_HEAD = 64 * 1024  # bytes of the head of a request, or of trailers: what cookies and proxies add is far less
HEAD_SECONDS = 30.0  # for it to arrive; browsers open connections ahead of what they ask
_OF_A_BODY = (b"content-length", b"transfer-encoding")


class HttpProtocol(HttpToolsProtocol):
    """Bounds the head of a request in bytes and in time: the parser takes any, from anyone.

    Puts itself into `scope["extensions"]["talaria"]`, as sockets do; only `api/served.py` and `api/passed.py` look
    there. `when_gone` is called when the client hangs up: ASGI has no word for it but a task that waits.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._bodiless_bytes = 0  # since the last that was of a body, or ended a head
        self._head_timer: asyncio.TimerHandle | None = None  # None while no head is awaited
        self.when_gone: Callable[[], None] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_has_come()
        super().connection_lost(exc)
        if self.when_gone is not None:
            self.when_gone()

    def data_received(self, data: bytes) -> None:
        self._is_bodiless = True
        super().data_received(data)
        if not self._is_bodiless:
            self._bodiless_bytes = 0
            return
        self._bodiless_bytes += len(data)
        if self._bodiless_bytes > MAX_HEAD and not self.transport.is_closing():
            if self._head_timer is not None:
                self._refuse(HeadTooLarge())
            else:  # trailers, or extensions of a chunk: the answer may be on its way
                self.abort()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, by the parser: as every other refusal looks."""
        self._refuse(RequestInvalid())

    def _refuse(self, error: RelayError) -> None:
        """Before there is a request that the application could answer."""
        request_id = secrets.token_hex(8)
        answer = render({"state": {"request_id": request_id}}, error)
        own = {**SECURITY, "X-Request-Id": request_id, "Cache-Control": "no-store", "Connection": "close"}
        answer.headers.update(own)
        head = b"".join([b"%b: %b\r\n" % header for header in answer.raw_headers])
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[answer.status_code], head, bytes(answer.body)))
        self.transport.close()

    def abort(self) -> None:
        """Drop the connection without waiting for a reader that has stopped."""
        self.transport.abort()

    @property
    def is_gone(self) -> bool:
        return self.transport.is_closing()

    @property
    def is_blocked(self) -> bool:
        """The next `send` waits for a reader."""
        return bool(self.flow.write_paused)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {"talaria": self}  # type: ignore[dict-item]
        if self._head_timer is None:
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Not those after a body (RFC 9110 §6.5.1): a proxy that takes care of headers lets trailers pass."""
        if self._head_timer is not None:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_bodiless = False
        self._head_has_come()
        if self.parser.should_upgrade() and any(name in _OF_A_BODY and value != b"0" for name, value in self.headers):
            raise ValueError("the parser would take the body for another request")
        if any(name == b"transfer-encoding" and value.strip().lower() != b"chunked" for name, value in self.headers):
            raise ValueError("the body would be passed on in a coding that nobody undoes")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._is_bodiless = False
        super().on_body(body)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _head_has_come(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
