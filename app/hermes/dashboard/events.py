"""What the dashboard's events mean, in the words of app.hermes.upstream. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import orjson

from app.hermes.upstream import Event, Json

CLARIFY_S = 300  # Hermes' own, which no setting changes
MAX_PASSED = 64 * 1024  # bytes of an event that the relay does not know
MAX_KIND = 64  # characters of its name
ENDS = frozenset({"message.complete", "error"})

_DROPPED = frozenset({
    "thinking.delta",  # a face for the spinner
    "reasoning.available",  # a copy of the answer
    "session.info", "session.title",  # read by the dashboard itself
})  # fmt: skip
_SECRET = ("sudo.", "secret.")  # prompts for what no phone should be asked to type, with whatever they hold
_OURS = frozenset({
    "run.started", "message.started", "assistant.delta", "tool.started", "tool.completed", "tool.failed",
    "assistant.commentary", "assistant.completed", "approval.responded", "run.completed", "run.failed",
    "run.cancelled", "done",
})  # fmt: skip
_CHOICES = ["once", "deny"]  # what every approval offers


@dataclass(frozen=True, slots=True)
class Usage:
    """Counted by Hermes since it made the live session's agent, not since the turn began."""

    input: int = 0
    output: int = 0
    total: int = 0
    compressions: int = 0

    @classmethod
    def of(cls, value: Any) -> Self:
        value = value if isinstance(value, Mapping) else {}
        return cls(*(n if isinstance(n := value.get(name), int) else 0 for name in cls.__slots__))

    def since(self, start: Usage) -> Json:
        """`usage` of one turn. A new agent has begun to count from zero."""
        start = Usage() if self.total < start.total else start
        return {
            "input_tokens": self.input - start.input, "output_tokens": self.output - start.output,
            "total_tokens": self.total - start.total,
        }  # fmt: skip


class Translation:
    """Of one turn. `reasoned` says that its thoughts were heard, or that nobody knows."""

    def __init__(self, approval_s: float, *, reasoned: bool = False) -> None:
        self._approval_s = approval_s
        self._reasoned = reasoned
        self._running: dict[str, str] = {}  # tool_id → preview, in the order they began
        self.start: Usage | None = Usage()  # what Hermes had counted when the turn began; None: not known

    def events(self, kind: str, payload: Json) -> list[Event]:
        if (translate := _TRANSLATED.get(kind)) is not None:
            return translate(self, payload)
        if kind in _DROPPED or kind in _OURS or len(kind) > MAX_KIND:
            return []
        if kind.startswith(_SECRET):
            return [(kind, {})]
        return [(kind, payload if len(orjson.dumps(payload)) <= MAX_PASSED else None)]

    def _delta(self, payload: Json) -> list[Event]:
        return [("assistant.delta", {"delta": payload.get("text")})]

    def _reasoning(self, payload: Json) -> list[Event]:
        self._reasoned = True
        return [("reasoning.delta", {"delta": payload.get("text")})]

    def _started(self, payload: Json) -> list[Event]:
        return [("message.started", {})]

    def _tool_started(self, payload: Json) -> list[Event]:
        id, preview = payload.get("tool_id"), payload.get("context")
        if isinstance(id, str):
            self._running[id] = preview if isinstance(preview, str) else ""
        return [("tool.started", {"tool_id": id, "tool_name": payload.get("name"), "preview": preview})]

    def _tool_ended(self, payload: Json) -> list[Event]:
        id, result = payload.get("tool_id"), payload.get("result")
        if isinstance(id, str):
            self._running.pop(id, None)
        body = {"tool_id": id, "tool_name": payload.get("name"), "args": payload.get("args"), "result": result}
        if "duration_s" in payload:
            body["duration_s"] = payload["duration_s"]
        if isinstance(result, dict) and (error := result.get("error")):
            return [("tool.failed", body | {"error": error})]
        return [("tool.completed", body)]

    def _interim(self, payload: Json) -> list[Event]:
        body = {"text": payload.get("text"), "already_streamed": payload.get("already_streamed") is True}
        return [("assistant.commentary", body)]

    def _approval(self, payload: Json) -> list[Event]:
        command, choices = payload.get("command"), payload.get("choices")
        body: Json = {
            "command": command, "description": payload.get("description"), "timeout_s": self._approval_s,
            "choices": choices if isinstance(choices, list) and choices else _CHOICES,
        }  # fmt: skip
        if (tool_id := self._asking(command)) is not None:
            body["tool_id"] = tool_id
        return [("approval.request", body)]

    def _asking(self, command: Any) -> str | None:
        """The tool that asks: Hermes does not say which."""
        named = (id for id, preview in self._running.items() if isinstance(command, str) and command in preview)
        return next(named, next(reversed(self._running), None))

    def _clarify(self, payload: Json) -> list[Event]:
        asked = {key: payload.get(key) for key in ("request_id", "question", "choices")}
        return [("clarify.request", asked | {"timeout_s": CLARIFY_S})]

    def _completed(self, payload: Json) -> list[Event]:
        text, status = payload.get("text"), payload.get("status")
        if status == "error":
            return [("run.failed", {"error": text})]
        out: list[Event] = []
        if not self._reasoned and isinstance(thoughts := payload.get("reasoning"), str) and thoughts:
            out.append(("reasoning.delta", {"delta": thoughts}))
        end: Json = {"completed": status != "interrupted", "interrupted": status == "interrupted"}
        if self.start is not None and (usage := Usage.of(payload.get("usage")).since(self.start))["total_tokens"]:
            end["usage"] = usage
        return [*out, ("assistant.completed", {"content": text or ""}), ("run.completed", end)]

    def _error(self, payload: Json) -> list[Event]:
        return [("error", {"message": payload.get("message")})]


_TRANSLATED: Mapping[str, Callable[[Translation, Json], list[Event]]] = {
    "message.start": Translation._started,
    "message.delta": Translation._delta,
    "reasoning.delta": Translation._reasoning,
    "tool.start": Translation._tool_started,
    "tool.complete": Translation._tool_ended,
    "message.interim": Translation._interim,
    "approval.request": Translation._approval,
    "clarify.request": Translation._clarify,
    "message.complete": Translation._completed,
    "error": Translation._error,
}
