"""Is it alive, is it ready, and what stands behind it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from app import __version__
from app.api import examples
from app.api.openapi import answers
from app.bootstrap import Relay
from app.errors import RelayError

router = APIRouter(tags=["health"])


@router.head("/health", include_in_schema=False)
@router.get("/health", responses=answers(examples.HEALTH))
async def health() -> dict[str, str]:
    """The probe of the apps: cheap, and the same whatever the upstreams do."""
    return {"status": "ok", "version": __version__, "platform": "talaria"}


@router.head("/livez", include_in_schema=False)
@router.get("/livez", responses=answers(examples.ALIVE))
async def livez() -> dict[str, str]:
    return {"status": "ok"}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=answers(examples.READY) | answers(examples.NOT_READY, 503, "Not now"))
async def readyz(request: Request) -> JSONResponse:
    """503 while nothing can be stored, or while draining. Upstreams are listed and never decide."""
    relay: Relay = request.app.state.relay
    body: dict[str, Any] = {"status": "ready", "database": "ok", "upstream": relay.upstream()}
    try:
        await relay.db.check_writable()
    except RelayError as exc:
        body |= {"status": "not_ready", "database": exc.code}
    if relay.gateway.draining:
        body["status"] = "draining"
    return JSONResponse(body, 200 if body["status"] == "ready" else 503)
