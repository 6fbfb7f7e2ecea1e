"""The sockets' edge: `/ws`, `/` for older clients, and `/agent/link`. Adapts an ASGI WebSocket to the rooms' Socket.

Sockets are routed here, before the framework: a link stays open for days, and each layer of middleware would keep its
frame of the stack alive for as long (12 KiB an idle socket) and cost as much as the rest of a connect.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api import link
from app.api.edge import client, header_values
from app.api.errors import UpgradeRequired, render
from app.bootstrap import Relay
from app.errors import Draining, NotFound, RateLimited, RelayError
from app.sessions.address import Address

PATHS = ("/ws", "/")


class Links:
    """Pure ASGI: takes the sockets and passes everything else on."""

    def __init__(self, app: ASGIApp, relay: Relay) -> None:
        self._app = app
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            lost = scope["type"] == "http" and scope["path"] in ("/ws", link.PATH)  # at `/` there is a page too
            await (render(scope, UpgradeRequired()) if lost else self._app)(scope, receive, send)
            return
        address, secure = client(self._relay, scope)
        is_link, bearer = scope["path"] == link.PATH, _bearer(scope)
        refused = await self._refusal(scope["path"], address)
        if refused is None and is_link:
            refused = await link.refusal(self._relay, bearer, address)
        if refused is not None:
            await render(scope, refused)(scope, receive, send)
            return
        await receive()  # websocket.connect
        await send({"type": "websocket.accept"})
        socket = ServerSocket(scope["extensions"]["talaria"], send)
        if is_link:
            await link.serve(self._relay, socket, bearer or "")
        else:
            origin = next(iter(header_values(scope, b"origin")), None)
            await self._relay.gateway.serve(socket, address, bearer, secure=secure, origin=origin)

    async def _refusal(self, path: str, address: Address) -> RelayError | None:
        if path not in (*PATHS, link.PATH):
            return NotFound("there is no socket at this path")
        if self._relay.gateway.draining:
            return Draining(retry_after=3)
        try:
            await self._relay.attempts.admit_upgrade(address)
        except RateLimited as exc:
            return exc
        return None


class ServerSocket:
    """Over our server's protocol object, which is in the scope's extensions."""

    __slots__ = (
        "_protocol", "_send", "abort", "closed", "drain", "listen", "pause", "raise_limit", "resume", "write",
    )  # fmt: skip

    def __init__(self, protocol: Any, send: Send) -> None:
        self._protocol = protocol
        self._send = send
        self.listen = protocol.listen
        self.pause = protocol.pause
        self.resume = protocol.resume
        self.write = protocol.write
        self.drain = protocol.drain
        self.raise_limit = protocol.raise_limit
        self.closed = protocol.wait_gone
        self.abort = protocol.abort

    @property
    def close_code(self) -> int | None:
        code: int | None = self._protocol.close_code
        return code

    @property
    def exceeded(self) -> bool:
        exceeded: bool = self._protocol.exceeded
        return exceeded

    async def close(self, code: int, reason: str) -> None:
        if not self._protocol.disconnected and not self._protocol.close_sent:
            with suppress(OSError):  # it went while its buffer was full: what is closed needs no closing
                await self._send({"type": "websocket.close", "code": code, "reason": reason})


def _bearer(scope: Scope) -> str | None:
    for value in header_values(scope, b"authorization"):
        scheme, _, token = value.partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
    return None
