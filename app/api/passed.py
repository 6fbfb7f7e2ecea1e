"""The Hermes API at its own paths, for any of its clients: who calls, what of it may go on, and what comes back.

Pure ASGI and before the framework, as sockets are: an answer is passed on piece by piece, each as soon as it is there.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.deps import device_with_chat
from app.api.edge import allowed_origins, header_values, origin_of
from app.api.errors import BodyTooLarge, MethodNotAllowed, OriginRefused, RequestStalled, refuse
from app.api.messages import key_of
from app.bootstrap import Relay
from app.errors import GrantMissing, RelayError
from app.hermes.errors import UpstreamUnreachable
from app.hermes.listener import BOUNDARY, Listener
from app.hermes.passing import paths
from app.hermes.passing.headers import Headers, returned
from app.hermes.passing.running import Ticket
from app.hermes.passing.service import SAFE, Asked, check_status
from app.sessions.service import Principal
from app.turns import accepting
from app.turns.errors import described
from app.wire.sse import event_of

AGAIN_S = 5  # how soon Hermes is looked at again while it is away
STALLED_S = 60.0  # without a byte more of a request, or with none of an answer taken
MAX_TURN = 10_000_000  # bytes of a message: Hermes takes no more, and says so itself
MAX_SESSION_ID = 256
MAX_AGE = b"600"  # seconds that a browser remembers what it may ask
TURN_HEADER = b"x-talaria-turn"
SESSION_KEY = b"x-hermes-session-key"


class Passing:
    """Takes the paths of Hermes' API and passes everything else on."""

    def __init__(self, app: ASGIApp, relay: Relay) -> None:
        self._app, self._relay = app, relay
        self._origins = allowed_origins(relay.settings.server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not paths.is_passed(scope["raw_path"]):
            await self._app(scope, receive, send)
            return
        origin = next(iter(header_values(scope, b"origin")), None)
        if origin is not None:
            allowed = origin_of(origin) in self._origins
            send = _Shared(send, origin if allowed else None)
            if scope["method"] == "OPTIONS" and header_values(scope, b"access-control-request-method"):
                answer = _preflight(scope) if allowed else refuse(scope, OriginRefused())
                await answer(scope, receive, send)
                return
        try:
            await _Pass(self._relay, scope, receive, send).run()
        except RelayError as exc:
            if scope["extensions"]["talaria"].is_gone:  # nobody is left to answer, and nothing has failed
                return
            if isinstance(exc, UpstreamUnreachable) and exc.retryable:
                exc.retry_after = exc.retry_after or AGAIN_S
            await refuse(scope, exc)(scope, receive, send)


class _Shared:
    """A `send` whose answers pages of one origin may read, or of none."""

    def __init__(self, send: Send, origin: str | None) -> None:
        self._send, self._origin = send, origin

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.add_vary_header("Origin")
            if self._origin is not None:
                headers["Access-Control-Allow-Origin"] = self._origin
                headers["Access-Control-Expose-Headers"] = "*"  # none of them is a secret, and no cookie is taken
        await self._send(message)


def _preflight(scope: Scope) -> Response:
    asked = ", ".join(header_values(scope, b"access-control-request-headers")) or "authorization, content-type"
    allowed = {
        "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
        "Access-Control-Allow-Headers": asked, "Access-Control-Max-Age": MAX_AGE.decode(),
    }  # fmt: skip
    return Response(status_code=204, headers=allowed)


class _Readable(Protocol):
    @property
    def is_over(self) -> bool: ...
    async def read(self) -> bytes: ...


class _Body:
    """What the caller sends after its headers, within bounds; what was read ahead can be put back."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most = receive, most
        self._read = 0
        self._back: tuple[bytes, bool] | None = None

    async def next(self) -> tuple[bytes, bool]:
        """Raises BodyTooLarge, RequestStalled, ClientDisconnect."""
        if self._back is not None:
            back, self._back = self._back, None
            return back
        try:
            async with asyncio.timeout(STALLED_S):
                message = await self._receive()
        except TimeoutError:
            raise RequestStalled() from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        data: bytes = message.get("body", b"")
        self._read += len(data)
        if self._read > self._most:
            raise _too_large(self._most)
        return data, message.get("more_body", False)

    async def whole(self, most: int) -> bytes | None:
        """All of it; None if that is more, and then nothing is lost."""
        parts, size, more = [], 0, True
        while more and size <= most:
            data, more = await self.next()
            parts.append(data)
            size += len(data)
        self._back = b"".join(parts), more
        return None if size > most else self._back[0]


class _Pass:
    """One request. `run` raises RelayError as long as nothing was answered."""

    def __init__(self, relay: Relay, scope: Scope, receive: Receive, send: Send) -> None:
        self._relay, self._scope, self._receive, self._send = relay, scope, receive, send
        self._path: bytes = scope["raw_path"]
        self._method: str = scope["method"]
        self._server: Any = scope["extensions"]["talaria"]

    async def run(self) -> None:
        paths.check(self._path, self._scope["query_string"])
        if self._method in ("TRACE", "CONNECT"):
            raise MethodNotAllowed()
        caller = await device_with_chat(self._relay, self._scope)
        length, body = self._body()
        with self._relay.passing.running.enter(caller.session_id) as ticket:
            self._server.when_gone = ticket.hang_up
            try:
                if self._server.is_gone:  # before anybody listened
                    return
                if body is None or not await self._streams_turn(body, caller, ticket):
                    await self._pass_on(length, body, caller, ticket)
            except ClientDisconnect:
                return
            finally:
                self._server.when_gone = None

    def _body(self) -> tuple[int | None, _Body | None]:
        """Its length where that is said, and None where there is none."""
        most = self._relay.settings.hermes.hermes_body_max_mb * 1024 * 1024
        lengths = header_values(self._scope, b"content-length")
        length = int(lengths[0]) if lengths else None
        if length is not None and length > most:
            raise _too_large(most)
        if not length and not header_values(self._scope, b"transfer-encoding"):
            return length, None
        return length, _Body(self._receive, most)

    # as it is

    async def _pass_on(self, length: int | None, body: _Body | None, caller: Principal, ticket: Ticket) -> None:
        asked = Asked(self._method, self._path, self._scope["query_string"], self._scope["headers"], length)
        async with self._relay.passing.exchange(asked, body, ticket) as answer:
            if self._method not in SAFE and (session_id := paths.session_of(self._path)) is not None:
                self._relay.hermes.changed_elsewhere(session_id)
            await self._answer(answer.status, answer.headers, answer, caller)

    # the streamed chat of a session, which is a turn

    async def _streams_turn(self, body: _Body, caller: Principal, ticket: Ticket) -> bool:
        """False: it is no such request, or Hermes has to say what is wrong with it."""
        place = paths.chat_stream(self._path) if self._method == "POST" else None
        if place is None or len(place[1]) > MAX_SESSION_ID:
            return False
        raw, api = await body.whole(MAX_TURN), self._relay.hermes.api
        session_key = next(iter(header_values(self._scope, SESSION_KEY)), None)
        # A Hermes that serves one profile takes the others for it, and so does this.
        profile = place[0] if place[0] is not None and await api.multiplexes() else None
        message = None if raw is None else accepting.kept_of_body(raw, profile, session_key)
        if message is None or not (await api.capabilities()).allows("session_chat_streaming"):
            return False
        listener = Listener()
        ticket.hold(listener.ended)
        ticket.is_stream = True
        turns, key = self._relay.turns, key_of(self._scope)
        try:
            turn_id = await turns.pass_on(caller.device_id, place[1], message, key, listener)
            head = await listener.head()
            check_status(head.status)
            headers = [header for header in returned(head.headers) if header[0] != b"content-length"]
            await self._answer(head.status, [*headers, (TURN_HEADER, turn_id.encode())], listener, caller)
        finally:
            listener.leave()
        return True

    # the answer

    async def _answer(self, status: int, headers: Headers, source: _Readable, caller: Principal) -> None:
        """Raises nothing: once it has begun, only its end can say that it is not whole."""
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        last = BOUNDARY
        try:
            while True:
                chunk = await source.read()
                self._check_session(caller)
                is_over = source.is_over
                await self._give({"type": "http.response.body", "body": chunk, "more_body": not is_over})
                if is_over:
                    return
                last = chunk
        except RelayError as exc:
            if isinstance(source, Listener) and status == 200 and last.endswith(BOUNDARY):
                await self._send({"type": "http.response.body", "body": event_of("error", described(exc))})
            else:
                await self._cut()
        except TimeoutError:  # the client stopped reading
            await self._cut()

    async def _give(self, message: Message) -> None:
        if self._server.is_blocked:  # else nothing waits, and a timer for each piece would cost more than the piece
            async with asyncio.timeout(STALLED_S):
                await self._send(message)
        else:
            await self._send(message)

    def _check_session(self, caller: Principal) -> None:
        """It may end while an answer is on its way. Raises GrantMissing."""
        now = self._relay.clock.now()
        for end in (caller.expires_at, caller.grants.get("chat")):
            if end is not None and now >= end:
                raise GrantMissing("the session, or its grant, has ended")

    async def _cut(self) -> None:
        self._server.abort()
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body may have at most {most} bytes: TALARIA_HERMES_BODY_MAX_MB")
