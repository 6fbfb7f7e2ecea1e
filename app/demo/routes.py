"""The HTTP routes of the stand-in."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from app.demo import about
from app.demo.agent import Agent
from app.demo.reading import read_script
from app.demo.requests import All, Body, Json, The, offered, refused_with, require_key, session_headers, text_of
from app.demo.script import Script
from app.demo.session_stream import SessionStream
from app.demo.stream import EventStream, Outlet
from app.demo.surface import Surface

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
async def capabilities(request: Request) -> Response:
    return Json(request.app.state.capabilities)


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
    session = agent.history.get(agent.history.tip(session_id))
    return Json({"object": "list", "session_id": session.id, "data": session.rows})


@router.post("/api/sessions/{session_id}/fork", dependencies=[Depends(offered("session_fork"))])
async def fork(agent: The, session_id: str, body: Body) -> Response:
    child = agent.history.fork(session_id, new_id=body.get("id"), title=body.get("title"))
    return Json({"object": "hermes.session", "session": child.as_json()}, 201)


@router.post("/api/sessions/{session_id}/chat", dependencies=[Depends(offered("session_chat"))])
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
    return Json(completion, headers=session_headers(turn.session_id, request))


@router.post("/api/sessions/{session_id}/chat/stream", dependencies=[Depends(offered("session_chat_streaming"))])
async def chat_stream(agent: The, runs: All, session_id: str, body: Body, request: Request) -> Response:
    """From 0.20 on its run can be looked at and stopped, and a reader who hangs up stops it; later ones ask, too."""
    message, script = _submit(agent, session_id, body)
    outlet, features = Outlet(split=script.split), request.app.state.capabilities["features"]
    surface = SessionStream(agent.clock, session_id, outlet, is_honest=bool(features.get("reasoning_streaming")))
    turn = agent.begin(session_id, message, script, surface)
    if features.get("run_steer"):
        runs.add(surface, turn)
        outlet.when_left_early(turn.interrupt)
    return EventStream(agent, outlet, session_headers(session_id, request))


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
    message = text_of(body.get("message") or body.get("input"))
    script = read_script(message)
    agent.submitted(session_id, message)
    if script.refuse is not None:
        agent.refused()
        raise refused_with(script.refuse)
    return message, script


def _whole(request: Request, name: str, default: int) -> int:
    try:
        return int(request.query_params.get(name, default))
    except ValueError:
        return default
