"""The socket's edge: `/ws`, and `/` for older clients. Adapts starlette's WebSocket to the gateway's Socket."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response
from starlette.websockets import WebSocket

from app.api.edge import client, upgrade_refusal
from app.bootstrap import Relay
from app.errors import Draining, RelayError

router = APIRouter()


class ServerSocket:
    """Over our server's protocol object, which is in the scope's extensions."""

    def __init__(self, websocket: WebSocket) -> None:
        self._send = websocket.send
        self._protocol: Any = websocket.scope["extensions"]["talaria"]
        self.listen = self._protocol.listen
        self.pause = self._protocol.pause
        self.resume = self._protocol.resume
        self.write = self._protocol.write
        self.drain = self._protocol.drain
        self.raise_limit = self._protocol.raise_limit
        self.closed = self._protocol.wait_gone
        self.abort = self._protocol.abort

    @property
    def close_code(self) -> int | None:
        code: int | None = self._protocol.close_code
        return code

    async def close(self, code: int, reason: str) -> None:
        if not self._protocol.disconnected and not self._protocol.close_sent:
            await self._send({"type": "websocket.close", "code": code, "reason": reason})


@router.websocket("/ws")
@router.websocket("/")
async def link(websocket: WebSocket) -> None:
    relay: Relay = websocket.app.state.relay
    refused = Draining(retry_after=3) if relay.gateway.draining else await upgrade_refusal(relay, websocket.scope)
    if refused is not None:
        await websocket.send_denial_response(_denial(refused))
        return
    await websocket.accept()
    scheme, _, token = websocket.headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else None
    address, secure = client(relay, websocket.scope)
    await relay.gateway.serve(ServerSocket(websocket), address, bearer or None, secure=secure)


def _denial(error: RelayError) -> Response:
    headers = {"X-Talaria-Error": error.code}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return Response(error.message, error.http_status, headers, media_type="text/plain")
