"""The dashboard's own server: its page, the routes that the relay reads, and the WebSocket."""

from __future__ import annotations

import hmac
from typing import cast

import orjson
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Message
from starlette.websockets import WebSocket

from app.demo import about
from app.demo.dashboard import methods
from app.demo.dashboard.registry import Dashboard
from app.demo.dashboard.socket import Droppable, Socket
from app.demo.refusal import Refusal

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SKIN = {"name": "default", "branding": {"agent_name": "Hermes Agent"}}


def create_dashboard(dashboard: Dashboard) -> FastAPI:
    """The ASGI app of a dashboard on loopback."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.dashboard = dashboard
    app.include_router(public)
    app.include_router(gated)
    app.add_api_websocket_route("/api/ws", talk)
    return app


def dashboard_of(request: Request) -> Dashboard:
    return cast(Dashboard, request.app.state.dashboard)


def require_loopback(request: Request) -> None:
    if _name(request.headers.get("host", "")) not in LOOPBACK:
        raise HTTPException(400, "Invalid Host header")


def require_token(request: Request) -> None:
    given = request.headers.get("x-hermes-session-token") or request.headers.get("authorization", "")[7:]
    if not _is(given, dashboard_of(request).token):
        raise HTTPException(401, "Unauthorized")


public = APIRouter(dependencies=[Depends(require_loopback)])
gated = APIRouter(dependencies=[Depends(require_loopback), Depends(require_token)])


@public.get("/")
async def page(request: Request) -> Response:
    """The token is in it, for whoever can read it from this machine."""
    token = orjson.dumps(dashboard_of(request).token).decode()
    script = f"<script>window.__HERMES_SESSION_TOKEN__={token};window.__HERMES_AUTH_REQUIRED__=false;</script>"
    return HTMLResponse(f"<!doctype html><html><head>{script}</head><body>A stand-in for Hermes.</body></html>")


@public.get("/api/status")
async def status(request: Request) -> Response:
    return JSONResponse(about.dashboard_status(dashboard_of(request).agent))


@gated.get("/api/config")
async def configuration(request: Request) -> Response:
    asks = dashboard_of(request).agent.asks
    approvals = {"mode": "manual", "timeout": asks.approval_timeout_s}
    return JSONResponse({"model": about.MODEL, "approvals": approvals, "display": {"busy_input_mode": "interrupt"}})


@gated.get("/api/sessions/{session_id}/messages")
async def messages(request: Request, session_id: str) -> Response:
    """Of the conversation as it goes on after compression."""
    history = dashboard_of(request).agent.history
    try:
        session = history.get(history.tip(session_id))
    except Refusal:
        raise HTTPException(404, "Session not found") from None
    page = {"limit": None, "offset": 0, "returned": len(session.rows)}
    return JSONResponse({"session_id": session.id, "messages": session.rows, "pagination": page})


async def talk(websocket: WebSocket) -> None:
    """Every refusal is a 403: a close code before the handshake reaches nobody."""
    dashboard = cast(Dashboard, websocket.app.state.dashboard)
    host, origin = websocket.headers.get("host", ""), websocket.headers.get("origin", "")
    strange = origin.startswith(("http://", "https://")) and origin.partition("//")[2] != host
    if _name(host) not in LOOPBACK or strange or not _is(websocket.query_params.get("token", ""), dashboard.token):
        await websocket.close()
        return
    await websocket.accept()
    socket = Socket(cast(Droppable, websocket.scope["extensions"]["stand_in"]["protocol"]))
    dashboard.connected(socket)
    ready = {"type": "gateway.ready", "payload": {"skin": SKIN}}
    socket.send_json({"jsonrpc": "2.0", "method": "event", "params": ready})
    try:
        while (message := await websocket.receive())["type"] == "websocket.receive":
            socket.send_json(methods.answer(dashboard, socket, _text(message)))
    finally:
        dashboard.left(socket)


def _text(message: Message) -> str:
    return message.get("text") or (message.get("bytes") or b"").decode(errors="replace")


def _name(host: str) -> str:
    """Without the port."""
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _is(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
