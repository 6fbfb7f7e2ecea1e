"""Requests of others to the API server of Hermes, under the relay's key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from app.errors import RelayError
from app.hermes.api import HermesApi
from app.hermes.errors import UpstreamAuthRequired, UpstreamUnanswered, UpstreamUnreachable, refusal_of
from app.hermes.passing.connection import NO_BODY, Connection, Head
from app.hermes.passing.headers import Headers, is_event_stream, lines, returned, sent
from app.hermes.passing.pool import Pool
from app.hermes.passing.running import Running, Ticket
from app.hermes.routes import Route
from app.hermes.stream import SILENCE_S
from app.tasks import Supervisor

SAFE = ("GET", "HEAD", "OPTIONS")  # asked again where a kept connection turns out to be closed
BODY_SILENCE_S = 60.0  # between two pieces of an answer that is no stream of events


class Body(Protocol):
    """What the caller sends after its headers."""

    async def next(self) -> tuple[bytes, bool]:
        """The next piece, and whether more comes. Raises RelayError; anything else when the caller is gone."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came; names of headers are in lower case. `length` of the body in bytes, None: not said."""

    method: str
    path: bytes
    query: bytes
    headers: Headers
    length: int | None = None


class Answer:
    """Hermes' answer while it comes: its headers are those to pass on."""

    def __init__(self, head: Head, connection: Connection) -> None:
        self.status, self.headers = head.status, returned(head.headers)
        if head.status in NO_BODY:  # a length, if there is one, is not that of this answer (RFC 9110 §8.6)
            self.headers = [header for header in self.headers if header[0] != b"content-length"]
        self.is_stream = is_event_stream(head.headers)
        self._connection = connection
        self.read = connection.read

    @property
    def is_over(self) -> bool:
        """All of the body has been read."""
        return self._connection.is_over


class PassThrough:
    """`answer_s`: how long Hermes may work on a request before its answer begins."""

    def __init__(self, api: HermesApi, tasks: Supervisor, *, answer_s: float) -> None:
        self._api, self._tasks, self._answer_s = api, tasks, answer_s
        self._pool = Pool()
        self.running = Running()

    async def close(self) -> None:
        self._pool.close()

    @asynccontextmanager
    async def exchange(self, asked: Asked, body: Body | None, ticket: Ticket) -> AsyncIterator[Answer]:
        """Leaving before the answer's end drops the request at Hermes too.

        Raises UpstreamError, Overloaded, and what `body` and the ticket do.
        """
        first, more = (b"", False) if body is None else await body.next()
        with self._api.naming():
            route, connection = await self._reach()
            request = _request(route, asked, first, has_body=body is not None, more=more)
            rest = body if more else None
            connection, head, upload = await self._ask(route, connection, asked, request, rest, ticket)
        try:
            answer = Answer(head, connection)
            ticket.is_stream = answer.is_stream
            connection.expect(SILENCE_S if answer.is_stream else BODY_SILENCE_S)
            yield answer
        finally:
            if upload is not None:
                upload.cancel()
            self._pool.give(route, connection)

    async def _reach(self) -> tuple[Route, Connection]:
        """Where a route cannot be connected to, the other one is taken at once, if there is one."""
        route = await self._api.current_route()
        try:
            return route, await self._pool.take(route)
        except UpstreamUnreachable:
            other = await self._api.choice.elsewhere(route)
            if other is None:
                raise
        return other, await self._pool.take(other)

    async def _ask(
        self, route: Route, connection: Connection, asked: Asked, request: bytes, body: Body | None, ticket: Ticket
    ) -> tuple[Connection, Head, asyncio.Task[None] | None]:
        """`body` is what comes after `request`. A connection that was closed meanwhile has not taken the request."""
        try:
            return await self._ask_on(connection, route, asked, request, body, ticket)
        except UpstreamUnanswered:
            if connection.used == 1 or asked.method not in SAFE or body is not None:
                raise
        return await self._ask_on(await self._pool.take(route, fresh=True), route, asked, request, body, ticket)

    async def _ask_on(
        self, connection: Connection, route: Route, asked: Asked, request: bytes, body: Body | None, ticket: Ticket
    ) -> tuple[Connection, Head, asyncio.Task[None] | None]:
        upload = None
        try:
            ticket.hold(connection.fail)
            connection.begin(request, whole=body is None, bodiless=asked.method == "HEAD", answer_s=self._answer_s)
            if body is not None:
                upload = self._tasks.start(_upload(connection, body, chunked=asked.length is None), "upload to hermes")
            head = await connection.head()
            check_status(head.status)
            return connection, head, upload
        except BaseException:
            if upload is not None:
                upload.cancel()
            self._pool.give(route, connection)
            raise


def check_status(status: int) -> None:
    """A refusal of the relay's key is no refusal of the caller's, and a redirect leads to where no caller gets.

    Raises UpstreamAuthRequired, UpstreamRefused.
    """
    if status in (401, 407):
        raise UpstreamAuthRequired()
    if 300 <= status < 400 and status != 304:
        raise refusal_of(status, b"")


async def _upload(connection: Connection, body: Body, *, chunked: bool) -> None:
    """Beside the answer, which may come before the request has ended."""
    more = True
    try:
        while more:
            data, more = await body.next()
            await connection.write(_chunk(data, more=more) if chunked else data)
        connection.is_sent = True
    except RelayError as exc:
        connection.fail(exc)
    except Exception:  # the caller is gone
        connection.abort()


def _request(route: Route, asked: Asked, first: bytes, *, has_body: bool, more: bool) -> bytes:
    """Head, and the first piece of the body."""
    target = route.prefix.encode() + asked.path + (b"?" + asked.query if asked.query else b"")
    framing, piece = _framing(asked, first, has_body=has_body, more=more)
    own = [(name.lower().encode(), value.encode()) for name, value in route.headers.items()]
    ours = [(b"host", route.host_header.encode()), (b"accept-encoding", b"identity"), *framing, *own]
    return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (asked.method.encode(), target, lines([*sent(asked.headers), *ours]), piece)


def _framing(asked: Asked, first: bytes, *, has_body: bool, more: bool) -> tuple[Headers, bytes]:
    if not has_body and asked.length is None:
        return [], b""
    if not more:  # what was read, whatever was said: less than that, and the next request would be taken for the rest
        return [(b"content-length", b"%d" % len(first))], first
    if asked.length is not None:
        return [(b"content-length", b"%d" % asked.length)], first
    return [(b"transfer-encoding", b"chunked")], _chunk(first, more=True)


def _chunk(data: bytes, *, more: bool) -> bytes:
    """RFC 9112 §7.1."""
    piece = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
    return piece if more else piece + b"0\r\n\r\n"
