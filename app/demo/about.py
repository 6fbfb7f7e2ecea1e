"""What the stand-in says about itself: the health and capability bodies of hermes-agent 0.19.0."""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from app.demo.agent import Agent

PLATFORM = "hermes-agent"
VERSION = "0.19.0"
MODEL = "hermes-agent"

# The names are those of the real server; what the stand-in cannot do is false here and has no endpoint.
FEATURES: dict[str, bool | str] = {
    "chat_completions": True,
    "chat_completions_streaming": True,
    "responses_api": False,
    "responses_streaming": False,
    "run_submission": True,
    "run_status": True,
    "run_events_sse": True,
    "run_stop": True,
    "run_approval_response": True,
    "tool_progress_events": True,
    "approval_events": True,
    "session_resources": True,
    "session_chat": True,
    "session_chat_streaming": True,
    "session_fork": True,
    "admin_config_rw": False,
    "jobs_admin": False,
    "memory_write_api": False,
    "skills_api": True,
    "audio_api": False,
    "realtime_voice": False,
    "session_continuity_header": "X-Hermes-Session-Id",
    "session_key_header": "X-Hermes-Session-Key",
    "cors": False,
}

ENDPOINTS = {
    "health": ("GET", "/health"),
    "health_detailed": ("GET", "/health/detailed"),
    "models": ("GET", "/v1/models"),
    "chat_completions": ("POST", "/v1/chat/completions"),
    "runs": ("POST", "/v1/runs"),
    "run_status": ("GET", "/v1/runs/{run_id}"),
    "run_events": ("GET", "/v1/runs/{run_id}/events"),
    "run_approval": ("POST", "/v1/runs/{run_id}/approval"),
    "run_stop": ("POST", "/v1/runs/{run_id}/stop"),
    "skills": ("GET", "/v1/skills"),
    "toolsets": ("GET", "/v1/toolsets"),
    "sessions": ("GET", "/api/sessions"),
    "session_create": ("POST", "/api/sessions"),
    "session": ("GET", "/api/sessions/{session_id}"),
    "session_update": ("PATCH", "/api/sessions/{session_id}"),
    "session_delete": ("DELETE", "/api/sessions/{session_id}"),
    "session_messages": ("GET", "/api/sessions/{session_id}/messages"),
    "session_fork": ("POST", "/api/sessions/{session_id}/fork"),
    "session_chat": ("POST", "/api/sessions/{session_id}/chat"),
    "session_chat_stream": ("POST", "/api/sessions/{session_id}/chat/stream"),
}


def health() -> dict[str, Any]:
    return {"status": "ok", "platform": PLATFORM, "version": VERSION}


def detailed_health(agent: Agent) -> dict[str, Any]:
    """`pid` and `updated_at` are stable while it is up and tell a restart."""
    since = datetime.fromtimestamp(agent.up_since, UTC).isoformat()
    checks: dict[str, Any] = {name: {"status": "ok"} for name in ("state_db", "config", "model")}
    checks["gateway"] = {"status": "ok", "state": "running", "connected_platforms": 1, "platforms": 1}
    queues = {"active_api_runs": 0, "process_completions": 0, "active_delegations": 0}
    checks["background_queues"] = {"status": "ok", **queues}
    connected = {"state": "connected", "error_code": None, "error_message": None, "updated_at": since}
    return {
        "status": "ok",
        "readiness": {"status": "ok", "checks": checks},
        "platform": PLATFORM,
        "version": VERSION,
        "gateway_state": "running",
        "platforms": {"api_server": connected},
        "active_agents": agent.turns_running,
        "gateway_busy": agent.turns_running > 0,
        "gateway_drainable": True,
        "exit_reason": None,
        "updated_at": since,
        "pid": os.getpid(),
    }


def dashboard_status(agent: Agent) -> dict[str, Any]:
    """What the dashboard says to everybody who can reach it."""
    api = detailed_health(agent)
    return {
        "version": VERSION,
        "release_date": "2026.7.20",
        "gateway_running": True,
        "gateway_state": "running",
        "gateway_platforms": api["platforms"],
        "gateway_updated_at": api["updated_at"],
        "active_agents": agent.turns_running,
        "gateway_busy": agent.turns_running > 0,
        "gateway_drainable": True,
        "auth_required": False,
        "auth_providers": [],
        "profiles": ["default"],
        "gateway_mode": "single",
        "gateway_pid": api["pid"],
    }


def models(agent: Agent) -> dict[str, Any]:
    model = {
        "id": MODEL,
        "object": "model",
        "created": int(agent.up_since),
        "owned_by": "hermes",
        "permission": [],
        "root": MODEL,
        "parent": None,
    }
    return {"object": "list", "data": [model]}


def capabilities(without: Collection[str] = ()) -> dict[str, Any]:
    """`without`: features that are switched off."""
    return {
        "object": "hermes.api_server.capabilities",
        "platform": PLATFORM,
        "model": MODEL,
        "auth": {"type": "bearer", "required": True},
        "runtime": {
            "mode": "server_agent",
            "tool_execution": "server",
            "split_runtime": False,
            "description": "A stand-in for demonstrations and tests: scripted answers, no model, no tools.",
        },
        "features": FEATURES | dict.fromkeys(without, False),
        "endpoints": {name: {"method": method, "path": path} for name, (method, path) in ENDPOINTS.items()},
    }


def state(agent: Agent) -> dict[str, Any]:
    """For tests that run the stand-in in another process."""
    return {
        "turns_started": [{"session_id": session, "message": message} for session, message in agent.turns_started],
        "turns_ended": agent.turns_ended,
        "turns_running": agent.turns_running,
        "at_gate": agent.at_gate,
        "gate_open": agent.gate.is_set(),
        "open": agent.open,
        "aborted": agent.aborted,
    }
