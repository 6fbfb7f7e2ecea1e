"""The HTTP routes of the stand-in."""

from __future__ import annotations

import asyncio
import hmac
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from app.demo import about
from app.demo.agent import Agent
from app.demo.reading import read_script
from app.demo.refusal import KeyRefused, Refusal, draining
from app.demo.script import Script
from app.demo.session_stream import SessionStream
from app.demo.stream import EventStream, Outlet
from app.demo.surface import Surface

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


def require_key(request: Request) -> None:
    """The scheme is case-sensitive in the real server, and so is the trap for clients."""
    expected = f"Bearer {request.app.state.api_key}"
    given = request.headers.get("authorization", "")
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise KeyRefused


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
Body = Annotated[dict[str, Any], Depends(read_body)]
public = APIRouter()
router = APIRouter(dependencies=[Depends(require_key)])


@public.get("/health")
@public.get("/v1/health")
async def health() -> Response:
    return Json(about.health())


@router.get("/health/detailed")
async def detailed_health(agent: The) -> Response:
    return Json(about.detailed_health(agent))


@router.get("/v1/models")
async def models(agent: The) -> Response:
    return Json(about.models(agent))


@router.get("/v1/capabilities")
async def capabilities() -> Response:
    return Json(about.capabilities())


@router.get("/v1/skills")
async def skills() -> Response:
    return Json({"object": "list", "data": []})


@router.get("/v1/toolsets")
async def toolsets() -> Response:
    return Json({"object": "list", "platform": "api_server", "data": []})


@router.get("/api/sessions")
async def list_sessions(agent: The, request: Request) -> Response:
    limit = min(max(_whole(request, "limit", 50), 1), 200)
    offset = max(_whole(request, "offset", 0), 0)
    page, more = agent.history.page(limit, offset, request.query_params.get("source"))
    data = [session.as_json(listed=True) for session in page]
    return Json({"object": "list", "data": data, "limit": limit, "offset": offset, "has_more": more})


@router.post("/api/sessions")
async def create_session(agent: The, body: Body) -> Response:
    session = agent.history.create(session_id=body.get("id"), title=body.get("title"))
    session.model = str(body.get("model") or session.model)
    session.has_system_prompt = bool(body.get("system_prompt"))
    return Json({"object": "hermes.session", "session": session.as_json()}, 201)


@router.get("/api/sessions/{session_id}")
async def get_session(agent: The, session_id: str) -> Response:
    return Json({"object": "hermes.session", "session": agent.history.get(session_id).as_json()})


@router.patch("/api/sessions/{session_id}")
async def patch_session(agent: The, session_id: str, body: Body) -> Response:
    return Json({"object": "hermes.session", "session": agent.history.patch(session_id, body).as_json()})


@router.delete("/api/sessions/{session_id}")
async def delete_session(agent: The, session_id: str) -> Response:
    agent.history.delete(session_id)
    return Json({"object": "hermes.session.deleted", "id": session_id, "deleted": True})


@router.get("/api/sessions/{session_id}/messages")
async def messages(agent: The, session_id: str) -> Response:
    return Json({"object": "list", "session_id": session_id, "data": agent.history.get(session_id).rows})


@router.post("/api/sessions/{session_id}/fork")
async def fork(agent: The, session_id: str, body: Body) -> Response:
    child = agent.history.fork(session_id, new_id=body.get("id"), title=body.get("title"))
    return Json({"object": "hermes.session", "session": child.as_json()}, 201)


@router.post("/api/sessions/{session_id}/chat")
async def chat(agent: The, session_id: str, body: Body, request: Request) -> Response:
    message, script = _submit(agent, session_id, body)
    turn = agent.begin(session_id, message, script, Surface())
    await asyncio.wait({turn.task})
    if turn.crashed or turn.task.cancelled():
        raise refused_with(500)
    completion = {
        "object": "hermes.session.chat.completion",
        "session_id": turn.session_id,
        "message": {"role": "assistant", "content": turn.content},
        "usage": turn.usage,
    }
    return Json(completion, headers=_session_headers(turn.session_id, request))


@router.post("/api/sessions/{session_id}/chat/stream")
async def chat_stream(agent: The, session_id: str, body: Body, request: Request) -> Response:
    message, script = _submit(agent, session_id, body)
    outlet = Outlet(split=script.split)
    agent.begin(session_id, message, script, SessionStream(agent.clock, session_id, outlet))
    return EventStream(agent, outlet, _session_headers(session_id, request))


@router.get("/__stand_in")
async def stand_in(agent: The) -> Response:
    return Json(about.state(agent))


@router.post("/__stand_in/gate")
async def gate(agent: The, body: Body) -> Response:
    if body.get("open"):
        agent.gate.set()
    else:
        agent.gate.clear()
    return Json(about.state(agent))


def _submit(agent: Agent, session_id: str, body: dict[str, Any]) -> tuple[str, Script]:
    """Checks, counts, and refuses if the message asks for it."""
    agent.history.get(session_id)
    message = _text_of(body.get("message") or body.get("input"))
    script = read_script(message)
    agent.submitted(session_id, message)
    if script.refuse is not None:
        agent.refused()
        raise refused_with(script.refuse)
    return message, script


def _text_of(message: object) -> str:
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


def _session_headers(session_id: str, request: Request) -> dict[str, str]:
    headers = {"x-hermes-session-id": session_id}
    key = request.headers.get("x-hermes-session-key")
    return headers if key is None else headers | {"x-hermes-session-key": key}


def _whole(request: Request, name: str, default: int) -> int:
    try:
        return int(request.query_params.get(name, default))
    except ValueError:
        return default
