"""A reverse proxy in front of Hermes that advertises less than Hermes can do: completions are all that is left."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.servers import serving

HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}
METHODS = ["GET", "POST", "PATCH", "DELETE"]


def _hidden(name: str) -> bool:
    return name.startswith(("run_", "runs", "session_chat"))


@asynccontextmanager
async def narrowed(url: str) -> AsyncIterator[str]:
    """Its base URL."""
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
                said[part] = {k: v for k, v in said.get(part, {}).items() if not _hidden(k)}
            return Response(json.dumps(said), answer.status_code, media_type="application/json")

        routes = [
            Route("/v1/capabilities", capabilities),
            Route("/{path:path}", forward, methods=METHODS),
        ]
        async with serving(Starlette(routes=routes)) as port:
            yield f"http://127.0.0.1:{port}"
