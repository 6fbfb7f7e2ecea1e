"""A reverse proxy in front of Hermes that advertises less than Hermes can do, or says that it can do no more now."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.servers import serving

HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}
METHODS = ["GET", "POST", "PATCH", "DELETE"]


RUNS = ("run_", "runs", "session_chat")  # what is hidden so that completions are all that is left
FULL = {  # word for word
    "error": {
        "message": "Too many concurrent runs (max 10)", "type": "rate_limit_error", "param": None,
        "code": "rate_limit_exceeded",
    }
}  # fmt: skip


@asynccontextmanager
async def narrowed(url: str, *, hide: tuple[str, ...] = (), full: bool = False) -> AsyncIterator[str]:
    """Its base URL. `hide`: beginnings of features and endpoints. `full`: it takes no run and no completion."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=None) as hermes:

        async def forward(request: Request) -> Response:
            headers = [(k, v) for k, v in request.headers.items() if k not in HOP_BY_HOP]
            asked = hermes.build_request(
                request.method, request.url.path + ("?" + request.url.query if request.url.query else ""),
                headers=headers, content=await request.body(),
            )  # fmt: skip
            answer = await hermes.send(asked, stream=True)

            async def body() -> AsyncIterator[bytes]:
                try:
                    async for chunk in answer.aiter_raw():
                        yield chunk
                finally:
                    await answer.aclose()  # also when the relay hangs up: then Hermes hears it

            kept = {k: v for k, v in answer.headers.items() if k not in HOP_BY_HOP}
            return StreamingResponse(body(), answer.status_code, kept)

        async def capabilities(request: Request) -> Response:
            answer = await hermes.get(request.url.path, headers={"Authorization": request.headers["authorization"]})
            said = answer.json()
            for part in ("features", "endpoints"):
                said[part] = {k: v for k, v in said.get(part, {}).items() if not k.startswith(hide)}
            return Response(json.dumps(said), answer.status_code, media_type="application/json")

        async def refuse(request: Request) -> Response:
            return JSONResponse(FULL, 429, {"Retry-After": "1"})

        refusing = [Route(path, refuse, methods=["POST"]) for path in ("/v1/runs", "/v1/chat/completions") if full]
        routes = [
            *refusing,
            Route("/v1/capabilities", capabilities),
            Route("/{path:path}", forward, methods=METHODS),
        ]
        async with serving(Starlette(routes=routes)) as port:
            yield f"http://127.0.0.1:{port}"
