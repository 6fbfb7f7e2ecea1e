"""What every route of the API server does with a request: its key, its body, and how it is refused."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Annotated, Any

import orjson
from fastapi import Depends, HTTPException, Request
from starlette.responses import JSONResponse

from app.demo.agent import Agent
from app.demo.refusal import KeyRefused, Refusal, draining
from app.demo.runs import Runs

MAX_BODY = 10_000_000  # bytes
# On every JSON answer of the real server, and on no stream: whoever passes answers on meets them.
PROTECTIVE = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "strict-transport-security": "max-age=31536000; includeSubDomains",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-xss-protection": "0",
    "referrer-policy": "no-referrer",
}


def refused_with(status: int) -> Refusal:
    """The refusal that the real server sends with this status. Made anew: a raised one keeps its traceback."""
    match status:
        case 429:
            kind = "rate_limit_error"
            return Refusal(429, "Too many concurrent runs (max 10)", "rate_limit_exceeded", kind=kind, retry_after=1)
        case 503:
            return draining()
    return Refusal(500, "Internal server error", "internal_error", kind="server_error")


class Json(JSONResponse):
    media_type = "application/json; charset=utf-8"

    def __init__(self, content: Any, status_code: int = 200, headers: dict[str, str] | None = None) -> None:
        super().__init__(content, status_code, PROTECTIVE | (headers or {}))

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


def refuse(refusal: Refusal) -> Json:
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    return Json(refusal.body(), refusal.status, headers)


def agent_of(request: Request) -> Agent:
    agent: Agent = request.app.state.agent
    return agent


def runs_of(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


def require_key(request: Request) -> None:
    """The scheme is case-sensitive in the real server, and so is the trap for clients."""
    expected = f"Bearer {request.app.state.api_key}"
    given = request.headers.get("authorization", "")
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise KeyRefused


def offered(feature: str) -> Callable[[Request], None]:
    """Routes of a feature that the capabilities deny are not there."""

    def check(request: Request) -> None:
        if not request.app.state.capabilities["features"].get(feature):
            raise HTTPException(404, "Not Found")

    return check


async def read_body(request: Request) -> dict[str, Any]:
    if int(request.headers.get("content-length") or 0) > MAX_BODY:
        raise Refusal(413, "Request body too large.", "body_too_large")
    try:
        body = orjson.loads(await request.body())
    except orjson.JSONDecodeError:
        raise Refusal(400, "Invalid JSON in request body", None) from None
    if not isinstance(body, dict):
        raise Refusal(400, "Request body must be a JSON object", None)
    return body


The = Annotated[Agent, Depends(agent_of)]
All = Annotated[Runs, Depends(runs_of)]
Body = Annotated[dict[str, Any], Depends(read_body)]


def text_of(message: object) -> str:
    """A text, or parts of text and images; nobody looks at the images."""
    if isinstance(message, str) and message:
        return message
    if not isinstance(message, list) or not message:
        raise Refusal(400, "Missing 'message' field", "missing_message")
    texts = []
    for part in message:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "input_text"):
            texts.append(str(part.get("text") or ""))
        elif kind in ("image_url", "input_image"):
            texts.append("[image]")
        else:
            raise Refusal(400, f"Unsupported content part type: {kind}", "unsupported_content_type")
    return "\n".join(texts)


def session_headers(session_id: str, request: Request) -> dict[str, str]:
    headers = {"x-hermes-session-id": session_id}
    key = request.headers.get("x-hermes-session-key")
    return headers if key is None else headers | {"x-hermes-session-key": key}
