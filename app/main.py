"""The ASGI app: which routers there are, and how an error looks over HTTP."""

from __future__ import annotations

import logging

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
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
from app.api.document import App
from app.api.errors import MethodNotAllowed, refuse, render
from app.api.for_host import ForHost
from app.bootstrap import Relay
from app.errors import NotFound, PayloadInvalid, RelayError
from app.mcp.endpoint import PATH, Endpoint
from app.web import site

log = logging.getLogger("talaria.http")


def create_app(relay: Relay) -> ASGIApp:
    """Serves an open relay; whoever opened it closes it."""
    app = App(title="Talaria", version=__version__, docs_url=None, redoc_url=None)
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
    if exc.status_code == 405:
        response.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return response


def _methods(request: Request) -> set[str]:
    """Of every route at this path: the framework names those of the first."""
    contexts = iter_route_contexts(request.app.routes)
    found = (context.original_route for context in contexts if isinstance(context.original_route, Route | APIRoute))
    return {
        method for route in found if route.matches(request.scope)[0] != Match.NONE for method in route.methods or ()
    }  # fmt: skip


async def _unexpected(request: Request, exc: Exception) -> Response:
    log.error("request failed", extra={"path": request.url.path}, exc_info=exc)
    return render(request.scope, RelayError("the relay failed on this request"))
