"""The checks, for the operator; and the routes by which the relay looks at itself from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, StreamingResponse

from app.api import examples
from app.api.deps import Caller, operator, relay
from app.api.edge import client
from app.api.openapi import answers
from app.doctor.finding import failed
from app.doctor.probe import ANSWERS, Probe
from app.errors import NotFound
from app.sessions.address import is_from

router = APIRouter(tags=["operator"])
MAX_BODY = 64 * 1024 * 1024  # bytes that a probe reads


@router.get("/doctor", summary="Every check, with what it means and what to do", responses=answers(examples.DOCTOR))
async def doctor(request: Request, _: Annotated[Caller, Depends(operator)]) -> dict[str, Any]:
    """Raises OperatorRequired."""
    findings = await relay(request).doctor.examine()
    return {"ok": not failed(findings), "findings": [finding.as_json() for finding in findings]}


@router.get("/doctor/probe", include_in_schema=False)
async def probe(request: Request) -> JSONResponse:
    return JSONResponse({"ok": True}, headers=_asked(request))


@router.post("/doctor/probe", include_in_schema=False)
async def body(request: Request) -> JSONResponse:
    """What of the body arrives, and from whom."""
    headers, size = _asked(request), 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY:
            break
    here, peer = relay(request), request.client.host if request.client else None
    address, _ = client(here, request.scope)
    said = {
        "bytes": size, "peer": peer, "client": address.host, "forwarded": "x-forwarded-for" in request.headers,
        "trusted": is_from(peer, here.settings.server.trusted_proxies),
    }  # fmt: skip
    return JSONResponse(said, headers=headers)


@router.get("/doctor/probe/stream", include_in_schema=False)
async def stream(request: Request) -> StreamingResponse:
    """Two pieces; the second waits until the first has been seen."""
    headers = _asked(request)
    return StreamingResponse(_pieces(relay(request).doctor.probe), media_type="text/event-stream", headers=headers)


async def _pieces(probe: Probe) -> AsyncIterator[bytes]:
    yield b"data: first\n\n"
    yield b"data: seen\n\n" if await probe.seen() else b"data: held\n\n"


def _asked(request: Request) -> dict[str, str]:
    """Nobody else learns that there is something here. Raises NotFound."""
    found = relay(request).doctor.probe
    if not found.asked(request.headers):
        raise NotFound("there is nothing at this path")
    return {ANSWERS: found.answer, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
