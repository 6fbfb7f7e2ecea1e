"""The proxy that one writes first: bare uvicorn, httpx behind it, both ways streamed.

`python -m deploy.bench.httpx_proxy URL` prints where it listens.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import httpx
from starlette.types import Receive, Scope, Send

from deploy.bench.bare import listening

HOP = {b"connection", b"transfer-encoding", b"keep-alive", b"host", b"date"}


class Proxy:
    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=None, trust_env=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def body() -> AsyncIterator[bytes]:
            more = True
            while more:
                message = await receive()
                yield message.get("body", b"")
                more = message.get("more_body", False)

        headers = [(name, value) for name, value in scope["headers"] if name not in HOP]
        content = body() if any(name == b"content-length" for name, _ in headers) else None
        request = self._client.build_request(scope["method"], scope["path"], headers=headers, content=content)
        response = await self._client.send(request, stream=True)
        raw = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in HOP]
        await send({"type": "http.response.start", "status": response.status_code, "headers": raw})
        async for chunk in response.aiter_raw():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await response.aclose()


if __name__ == "__main__":
    listening(Proxy(sys.argv[1]))
