"""The larger objects that the dashboard of hermes-agent 0.19.0 sends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from app.demo.dashboard.live import Live

VERSION = "0.19.0"
RELEASED = "2026.7.20"
PROVIDER = "custom"
CONTEXT = 131_072  # tokens
HOME = "/home/hermes"
MARKER = re.compile(r"\b(SAY|PRE|THINK|APPROVE2?|ASK|TOOL:\w+|WORDS|DELAY):?")


@dataclass(slots=True)
class Usage:
    """What the turns of one open conversation have cost."""

    model: str
    prompt: int = 0
    completion: int = 0
    calls: int = 0
    compressions: int = 0
    last_prompt: int = 0

    def count(self, usage: dict[str, int], calls: int) -> None:
        self.prompt += usage["input_tokens"]
        self.completion += usage["output_tokens"]
        self.calls += calls
        self.last_prompt = usage["input_tokens"] // max(calls, 1)

    def as_json(self) -> dict[str, Any]:
        used = {
            "context_used": self.last_prompt,
            "context_max": CONTEXT,
            "context_percent": self.last_prompt * 100 // CONTEXT,
        }
        return {
            "model": self.model,
            "input": self.prompt,
            "output": self.completion,
            "reasoning": 0,
            "prompt": self.prompt,
            "completion": self.completion,
            "total": self.prompt + self.completion,
            "calls": self.calls,
            **(used if self.calls else {}),
            "compressions": self.compressions,
            "active_subagents": 0,
        }


def lazy_info(model: str) -> dict[str, Any]:
    """Of a conversation that has run no turn since it was opened."""
    return {
        "model": model,
        "tools": {},
        "skills": {},
        "cwd": HOME,
        "branch": "",
        "project": None,
        "lazy": True,
        "desktop_contract": 4,
        "profile_name": "default",
    }


def info(live: Live) -> dict[str, Any]:
    return {
        "model": live.model,
        "provider": PROVIDER,
        "reasoning_effort": "",
        "service_tier": "",
        "fast": False,
        "yolo": False,
        "approval_mode": "manual",
        "tools": {"clarify": ["clarify"], "terminal": ["terminal"], "web": ["web_search"]},
        "skills": {},
        "cwd": HOME,
        "branch": "",
        "project": None,
        "personality": "",
        "running": live.turn is not None,
        "title": live.title,
        "stored_session_id": live.stored_id,
        "desktop_contract": 4,
        "version": VERSION,
        "release_date": RELEASED,
        "update_behind": 0,
        "update_command": "",
        "usage": live.usage.as_json(),
        "profile_name": "default",
        "install_warning": "",
        "mcp_servers": [],
        "system_prompt": "",
    }


def listed(live: Live) -> dict[str, Any]:
    """One line of session.active_list."""
    doing = live.inflight or {}
    queued = live.queued[0] if live.queued else ""
    preview = queued or doing.get("assistant") or doing.get("user") or ""
    return {
        "current": False,
        "id": live.id,
        "last_active": live.last_active,
        "message_count": len(settled(live)),
        "model": live.model,
        "preview": " ".join(preview.split())[:160],
        "session_key": live.stored_id,
        "started_at": live.started_at,
        "status": live.status,
        "title": live.title,
    }


def resumed(live: Live, *, was_open: bool) -> dict[str, Any]:
    """The answer to session.resume."""
    rows = settled(live)
    payload = {
        "info": info(live) if was_open else lazy_info(live.model),
        "message_count": len(rows),
        "messages": messages(rows),
        "running": live.turn is not None,
        "session_id": live.id,
        "session_key": live.stored_id,
        "started_at": live.started_at,
        "status": live.status,
        "resumed": live.stored_id,
    }
    if not was_open or live.inflight:
        payload["inflight"] = live.inflight
    if live.queued:
        payload["queued"] = {"user": live.queued[0]}
    return payload


def settled(live: Live) -> list[dict[str, Any]]:
    """The rows of the turns that have ended."""
    return live.rows[: live.known] if live.turn else live.rows


def messages(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as the dashboard shows them: no text of a call without words, and of a tool only what it was about."""
    calls: dict[str, tuple[str, str]] = {}
    shown: list[dict[str, Any]] = []
    for row in rows:
        for call in row["tool_calls"] or ():
            args = orjson.loads(call["function"]["arguments"])
            first = next((str(value) for value in args.values()), "")
            calls[call["id"]] = call["function"]["name"], first
        if row["role"] == "tool":
            name, first = calls.get(row["tool_call_id"], (row["tool_name"], ""))
            shown.append({"role": "tool", "name": name, "context": context(name, first)})
        elif row["content"]:
            thought = {key: row[key] for key in ("reasoning", "reasoning_content") if row[key] is not None}
            shown.append({"role": row["role"], "text": row["content"], **thought})
    return shown


def context(tool: str, preview: str) -> str:
    """What a tool is about, in words."""
    verb = {"terminal": "Running ", "clarify": "Asking ", "web_search": "Searching "}.get(tool, "")
    return f"{verb}{preview}"


def title_of(message: str) -> str:
    words = MARKER.sub(" ", message).split()
    return " ".join(words[:6])[:60] or "A conversation"
