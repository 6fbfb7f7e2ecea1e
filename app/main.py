"""The ASGI app: which routers there are, and how an error looks over HTTP."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from app import __version__
from app.api import (
    bridge,
    doctor,
    edge,
    health,
    identity,
    info,
    media,
    messages,
    metrics,
    notifications,
    pairing,
    passed,
    phone,
    push,
    sessions,
    stopping,
    ws,
)
from app.api.errors import MethodNotAllowed, refuse, render
from app.api.for_host import ForHost
from app.bootstrap import Relay
from app.errors import NotFound, PayloadInvalid, RelayError
from app.mcp.endpoint import PATH, Endpoint
from app.web import site

log = logging.getLogger("talaria.http")


def create_app(relay: Relay) -> ASGIApp:
    """Serves an open relay; whoever opened it closes it."""
    app = FastAPI(title="Talaria", version=__version__, docs_url=None, redoc_url=None)
    app.state.relay = relay
    for router in (
        health.router,
        info.router,
        identity.router,
        pairing.router,
        sessions.router,
        messages.router,
        phone.router,
        push.router,
        media.router,
        stopping.router,
        doctor.router,
        bridge.router,
        notifications.router,
        metrics.router,
        site.router,
    ):
        app.include_router(router)
    app.add_exception_handler(RelayError, _relay_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    ours = relay.settings.server
    tools = Endpoint(relay, hosts=edge.allowed_hosts(ours), origins=edge.allowed_origins(ours))
    routed = messages.Sending(bridge.Commands(ForHost(passed.Passing(app, relay), relay, PATH, tools), relay), relay)
    return edge.Edge(ws.Links(routed, relay), relay)


async def _relay_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RelayError)
    return refuse(request.scope, exc)


async def _invalid(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    parts = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors()[:3]]
    return render(request.scope, PayloadInvalid("; ".join(parts)))


async def _http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    known = {404: NotFound("there is nothing at this path"), 405: MethodNotAllowed()}
    response = render(request.scope, known.get(exc.status_code, RelayError(exc.detail)), exc.status_code)
    response.headers.update(exc.headers or {})
    return response


async def _unexpected(request: Request, exc: Exception) -> Response:
    log.error("request failed", extra={"path": request.url.path}, exc_info=exc)
    return render(request.scope, RelayError("the relay failed on this request"))
