"""A path that is for the operator and the agent's link alone.

Routed before the framework, whose layers would stand between a long answer and a client that leaves.
"""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.deps import host
from app.api.errors import MethodNotAllowed, refuse
from app.api.messages import read
from app.bootstrap import Relay
from app.errors import Overloaded, RelayError

AT_ONCE = 64  # requests, each of which may wait for a phone, or for its owner's consent


class ForHost:
    """Pure ASGI: POSTs of hosts go to `endpoint`, with a body that has come, and `sender` in their state."""

    def __init__(self, app: ASGIApp, relay: Relay, path: str, endpoint: ASGIApp) -> None:
        self._app, self._relay, self._path, self._endpoint = app, relay, path, endpoint
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        self._answering += 1
        try:
            sender, body = await self._admit(scope, receive)
        except RelayError as exc:
            response = refuse(scope, exc)
            if isinstance(exc, MethodNotAllowed):
                response.headers["Allow"] = "POST"
            await response(scope, receive, send)
        except ClientDisconnect:
            return
        else:
            scope["state"]["sender"] = sender
            await self._endpoint(scope, _after(body, receive), send)
        finally:
            self._answering -= 1

    async def _admit(self, scope: Scope, receive: Receive) -> tuple[str, bytes]:
        """Raises HostRequired, RateLimited, MethodNotAllowed, Overloaded, BodyTooLarge."""
        caller = await host(self._relay, scope)
        if scope["method"] != "POST":
            raise MethodNotAllowed()
        if self._answering > AT_ONCE:
            raise Overloaded(retry_after=1)
        return caller.sender, await read(receive)


def _after(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body, and then what the connection does."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_message
