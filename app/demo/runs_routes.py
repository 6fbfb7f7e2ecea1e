"""The routes of /v1/runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from app.demo.asks import CHOICES
from app.demo.reading import read_script
from app.demo.refusal import Refusal
from app.demo.requests import All, Body, Json, The, offered, refused_with, require_key
from app.demo.runs import Run
from app.demo.stream import EventStream

MAX_RUNS = 10  # at once


router = APIRouter(prefix="/v1/runs", dependencies=[Depends(require_key), Depends(offered("run_submission"))])


@router.post("")
async def submit(agent: The, runs: All, body: Body) -> Response:
    message = _input_of(body.get("input"))
    script = read_script(message)
    run = Run(agent.clock, body.get("session_id"))
    agent.given[run.id] = list(body.get("conversation_history") or ())
    agent.submitted(run.session_id, message)
    if script.refuse is not None or runs.busy >= MAX_RUNS:
        agent.refused()
        raise refused_with(script.refuse or 429)
    runs.add(run, agent.begin(run.session_id, message, script, run))
    return Json({"run_id": run.id, "status": "started"}, 202)


@router.get("/{run_id}", dependencies=[Depends(offered("run_status"))])
async def status(runs: All, run_id: str) -> Response:
    return Json(runs.get(run_id).as_json())


@router.get("/{run_id}/events", dependencies=[Depends(offered("run_events_sse"))])
async def events(agent: The, runs: All, run_id: str) -> Response:
    return EventStream(agent, runs.read(run_id), {})


@router.post("/{run_id}/stop", dependencies=[Depends(offered("run_stop"))])
async def stop(runs: All, run_id: str) -> Response:
    runs.running(run_id).stop()
    return Json({"run_id": run_id, "status": "stopping"})


@router.post("/{run_id}/approval", dependencies=[Depends(offered("run_approval_response"))])
async def approve(agent: The, runs: All, run_id: str, body: Body) -> Response:
    run, choice = runs.get(run_id), str(body.get("choice"))
    if choice not in CHOICES:
        expected = f"Invalid approval choice; expected one of: {', '.join(CHOICES)}"
        raise Refusal(400, expected, "invalid_approval_choice")
    if run.is_over:
        raise Refusal(409, f"Run has no active approval session: {run_id}", "approval_not_active")
    resolved = agent.asks.decide(run.lane, choice, every=bool(body.get("all")))
    if not resolved:
        raise Refusal(409, f"Run has no pending approval: {run_id}", "approval_not_pending")
    run.responded(choice, resolved)
    return Json({"object": "hermes.run.approval_response", "run_id": run_id, "choice": choice, "resolved": resolved})


def _input_of(given: object) -> str:
    """A text, or messages of which the last one counts."""
    last: Any = given[-1] if isinstance(given, list) and given else given
    text = last.get("content") if isinstance(last, dict) else last
    if not isinstance(text, str) or not text:
        raise Refusal(400, "Missing 'input' field", None)
    return text
