"""An open socket to the dashboard, or why there is none."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from app.hermes.dashboard.credentials import About, Access
from app.hermes.dashboard.errors import unreachable
from app.hermes.errors import UpstreamFailed, UpstreamInvalid, UpstreamRefused, UpstreamUnreachable, UpstreamUnsupported
from app.hermes.routes import Route, trust

OPEN_S = 10.0
PING_S = 20.0  # a half-open socket is noticed within twice this
MAX_FRAME = 64 * 1024 * 1024  # bytes: the answer to a resume holds the whole conversation


class _Connect(connect):
    """Follows no redirect: the URL holds a credential."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def open_socket(route: Route, access: Access) -> tuple[About, ClientConnection]:
    """Raises UpstreamError, of which UpstreamAuthRequired names what to set."""
    about, query = await access.knock()
    url = f"{'wss' if route.tls else 'ws'}://{route.host_header}{route.prefix}/api/ws?{urlencode(query)}"
    try:
        socket = await _Connect(
            url, compression=None, max_size=MAX_FRAME, proxy=None, open_timeout=OPEN_S, close_timeout=1.0,
            ssl=trust() if route.tls else None, ping_interval=PING_S, ping_timeout=PING_S, user_agent_header="talaria",
        )  # fmt: skip
    except InvalidStatus as exc:
        status = exc.response.status_code
        if status == 403:
            raise await access.why_refused() from None
        if status in (404, 405):
            raise UpstreamUnsupported("this dashboard has no socket: Hermes 0.19 or newer is needed") from None
        if 300 <= status < 400:
            raise UpstreamRefused(
                f"the dashboard's socket redirects: {route.setting} must be where it answers itself"
            ) from None
        raise UpstreamFailed(f"the dashboard's socket failed (HTTP {status})") from None
    except (OSError, TimeoutError, WebSocketException) as exc:
        raise unreachable(route, exc) from exc
    try:
        await _expect_ready(socket)
    except BaseException:
        await socket.close()
        raise
    return about, socket


async def _expect_ready(socket: ClientConnection) -> None:
    try:
        async with asyncio.timeout(OPEN_S):
            frame = orjson.loads(await socket.recv(decode=False))
        if frame["params"]["type"] == "gateway.ready":
            return
    except (ConnectionClosed, TimeoutError) as exc:
        raise UpstreamUnreachable(detail=type(exc).__name__) from exc
    except (orjson.JSONDecodeError, KeyError, TypeError):
        pass
    raise UpstreamInvalid("what answers on the dashboard's socket is not Hermes")
