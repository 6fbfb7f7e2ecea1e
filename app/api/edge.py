"""What holds for every request and upgrade: which names we answer to, whose pages may call, headers, a request id."""

from __future__ import annotations

import logging
import re
import secrets
from collections import Counter
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import HostUnknown, OriginRefused, render
from app.bootstrap import Relay
from app.errors import RelayError
from app.hermes.passing.paths import is_passed
from app.logs import bind
from app.pairing.payload import ANYWHERE
from app.sessions.address import Address, client_address, is_from
from app.settings import ServerSettings

log = logging.getLogger("talaria.http")

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_READS = {"GET", "HEAD", "OPTIONS"}
SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_STARTS = ("http.response.start", "websocket.http.response.start", "websocket.accept")
_UNROUTED = ("/messages",)  # answered before the framework sees them
SANDBOX = "sandbox; default-src 'none'"  # for files of others, and whatever else is answered where they are


class Edge:
    """Pure ASGI: streams pass untouched, and a WebSocket is refused by a real HTTP answer before the upgrade."""

    def __init__(self, app: ASGIApp, relay: Relay) -> None:
        self._app = app
        self._hosts = allowed_hosts(relay.settings.server)
        self._origins = allowed_origins(relay.settings.server)
        self._requests = relay.metrics.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        scope["state"] = {**scope.get("state", {}), "request_id": request_id}
        answer = _Answer(scope, send, request_id, self._requests, in_sandbox=is_of_others(scope))
        with bind(request_id=request_id):
            refused = self._refusal(scope)
            if refused is not None:
                await render(scope, refused)(scope, receive, answer)
                return
            try:
                await self._app(scope, receive, answer)
            except ClientDisconnect:
                return  # nobody is left to answer
            except Exception as exc:
                if answer.started:
                    raise
                log.error("request failed", extra={"path": scope["path"]}, exc_info=exc)
                await render(scope, RelayError("the relay failed on this request"))(scope, receive, answer)

    def _refusal(self, scope: Scope) -> RelayError | None:
        hosts = header_values(scope, b"host")
        if len(hosts) != 1 or not names_us(hosts[0], self._hosts):
            return HostUnknown(detail=" ".join(hosts))
        origins = header_values(scope, b"origin")
        if scope["type"] == "http" and scope["method"] in _READS:
            return None  # reading is for CORS to allow, and it allows nobody
        if all(origin_of(origin) in self._origins for origin in origins):
            return None
        return OriginRefused(detail=" ".join(origins))


class _Answer:
    """A `send` that counts the answer and adds the headers every answer has, unless a route chose its own."""

    def __init__(
        self, scope: Scope, send: Send, request_id: str, counts: Counter[tuple[str, str]], *, in_sandbox: bool
    ) -> None:
        self._scope, self._send, self._counts = scope, send, counts
        self._request_id = request_id
        self._in_sandbox = in_sandbox
        self.started = False

    async def __call__(self, message: Message) -> None:
        self.started = self.started or message["type"] in ("http.response.start", "websocket.accept")
        if message["type"] in _STARTS:
            self._counts[route_class(self._scope), str(message.get("status", 101))] += 1
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._request_id
            for name, value in SECURITY.items():
                headers.setdefault(name, value)
            if self._in_sandbox:
                headers["Content-Security-Policy"] = SANDBOX
            if headers.get("content-type", "").startswith("application/json"):
                headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


def route_class(scope: Scope) -> str:
    """The beginning of the route's own path, never of what was asked for: strangers could make any number of those."""
    if scope["type"] == "websocket":
        return "socket"
    if is_passed(scope["raw_path"]):
        return "hermes"
    route = scope.get("route")
    path: str = scope["path"] if scope["path"] in _UNROUTED else getattr(route, "path", "/other")
    return path.split("/", 2)[1] or "page"


def allowed_hosts(settings: ServerSettings) -> frozenset[str]:
    """Names, and names with a port where the operator wrote one. A name alone goes with any port.

    Any port also for loopback: a container's is published under another, and a page of another site cannot make the
    browser send a loopback name. The address that we listen on is what the operator's commands and health checks dial.
    """
    named = [*settings.allowed_hosts, *([urlsplit(settings.public_url).netloc] if settings.public_url else [])]
    if settings.host not in ANYWHERE:
        named.append(f"[{settings.host}]" if ":" in settings.host else settings.host)
    return frozenset({*LOOPBACK, *(name.lower() for name in named)})


def allowed_origins(settings: ServerSettings) -> frozenset[str]:
    """The public URL; without one, loopback under our own port: another port is somebody else's page."""
    if settings.public_url:
        found: Iterable[str | None] = [origin_of(settings.public_url)]
    else:
        found = [origin_of(f"http://{name}:{settings.port}") for name in LOOPBACK]
    return frozenset(origin for origin in found if origin)


def names_us(host: str, allowed: frozenset[str]) -> bool:
    match = _HOST.fullmatch(host.lower())
    return match is not None and (match[1].removesuffix(".") in allowed or match[0] in allowed)


def is_of_others(scope: Scope) -> bool:
    """What is answered there was made by somebody else, and a browser may be made to show it."""
    return f"{scope['path']}/".startswith("/media/") or is_passed(scope["raw_path"])


def origin_of(text: str) -> str | None:
    """Without the scheme's own port, as browsers send it. None for what is no origin, `null` among them."""
    try:
        parts = urlsplit(text.lower())
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    return f"{parts.scheme}://{host}{shown}"


def header_values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def client(relay: Relay, scope: Scope) -> tuple[Address, bool]:
    """Who is calling, and whether TLS covers the way to us or to a proxy we trust."""
    peer, trusted = scope["client"][0] if scope.get("client") else None, relay.settings.server.trusted_proxies
    secure = scope["scheme"] in ("https", "wss")
    if not secure and is_from(peer, trusted):
        nearest = ",".join(header_values(scope, b"x-forwarded-proto")).rpartition(",")[2]
        secure = nearest.strip().lower() in ("https", "wss")
    return client_address(peer, scope["headers"], trusted), secure
