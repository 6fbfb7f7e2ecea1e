"""The tools of one turn: who started, who ended, and what came out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson

from app.turns.rows import words_of
from app.turns.text import Text
from app.wire.depth import is_too_deep

Row = Mapping[str, Any]

MAX_RESULT = 256 * 1024  # bytes of one result or argument list that travel; the rest is in the history
MAX_LINE = 4096  # characters of a preview and of an error
MAX_NAME = 128  # characters of a name and of an id
_IDS = ("tool_call_id", "call_id", "tool_id", "toolCallId")


@dataclass(slots=True)
class Tool:
    """Its fields are the wire's; those that are None do not travel."""

    tool_id: str
    tool_name: str
    preview: str | None = None
    args: Any = None
    state: str = "running"  # running, completed or failed
    result: Any = None
    duration_s: float | None = None
    error: str | None = None
    truncated: bool | None = None
    at: int | None = None  # characters of the answer that came before it
    started_at: float | None = None  # not for the wire

    def as_json(self, *fields: str) -> dict[str, Any]:
        """All fields, or those named; an id, a name and a state always."""
        names = ("tool_id", "tool_name", *(fields or _WIRE), "state")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


_WIRE = ("preview", "args", "result", "duration_s", "error", "truncated", "at")


class Tools:
    """In the order in which they started."""

    def __init__(self) -> None:
        self.all: list[Tool] = []

    def as_json(self) -> list[dict[str, Any]]:
        return [tool.as_json() for tool in self.all]

    def started(self, body: Row, now: float) -> Tool:
        tool = self._by_id(body) or self._new(body)
        tool.state, tool.started_at = "running", now
        tool.preview = _text(body.get("preview"))
        tool.args, cut = _bounded(body.get("args"))
        tool.truncated = cut or None
        return tool

    def ended(self, body: Row, now: float, *, failed: bool) -> Tool:
        """Closes the tool with this id, else the oldest running one of this name, else one nobody saw start."""
        tool = self._by_id(body) or self.running(body) or self._new(body)
        error = body.get("error")
        tool.state = "failed" if failed or error is True or body.get("success") is False else "completed"
        tool.error = _text(error)
        if tool.started_at is not None:
            tool.duration_s = round(max(0.0, now - tool.started_at), 3)
        if isinstance(duration := body.get("duration", body.get("duration_s")), int | float):
            tool.duration_s = float(duration)
        self._give_result(tool, body.get("result", body.get("result_preview")))
        return tool

    def running(self, body: Row) -> Tool | None:
        name = _name(body)
        return next((tool for tool in self.all if tool.state == "running" and tool.tool_name == name), None)

    def of_request(self, body: Row) -> Tool | None:
        """The running tool that asks for an approval: by its id, by the command it shows, else the last one."""
        running = [tool for tool in self.all if tool.state == "running"]
        command = body.get("command")
        named = [tool for tool in running if isinstance(command, str) and command and command in (tool.preview or "")]
        return self._by_id(body) or next(iter(named or running[-1:]), None)

    @classmethod
    def restored(cls, stored: Iterable[Row]) -> Tools:
        """From `as_json`."""
        tools, known = cls(), {field.name for field in fields(Tool)}
        tools.all = [Tool(**{name: value for name, value in row.items() if name in known}) for row in stored]
        return tools

    def read_results(self, rows: Sequence[Row]) -> list[Tool]:
        """Results from the tool rows of a transcript, which name no id of ours. Returns the tools that got one."""
        got = []
        for row in rows:
            if row.get("role") != "tool":
                continue
            name, call = row.get("tool_name"), row.get("tool_call_id")
            mine = (t for t in self.all if t.result is None and (t.tool_id == call or t.tool_name == name))
            if (tool := next(mine, None)) is not None:
                self._give_result(tool, row.get("content"))
                tool.state = "completed" if tool.state == "running" else tool.state
                got.append(tool)
        return got

    @classmethod
    def of_rows(cls, rows: Iterable[Row], known: Collection[Any] = ()) -> Tools:
        """The tools that a transcript tells of; those that are `known` by its ids keep them."""
        tools, text = cls(), Text()
        rows = list(rows)
        for row in rows:
            calls = row.get("tool_calls")
            if row.get("role") == "assistant":
                text.add(words_of(row.get("content")))
            if calls:
                text.end_segment()
            for call in calls if isinstance(calls, list) else ():
                function = call.get("function") if isinstance(call, Mapping) else None
                if isinstance(function, Mapping):
                    tool = tools._new({"tool_name": function.get("name")})
                    tool.tool_id = call["id"] if call.get("id") in known else tool.tool_id
                    tool.args, cut = _bounded(_parsed(function.get("arguments")))
                    tool.truncated, tool.at = cut or None, len(str(text))
        tools.read_results(rows)
        return tools

    def _new(self, body: Row) -> Tool:
        tool = Tool(next(_ids(body), f"t{len(self.all) + 1}"), _name(body))
        self.all.append(tool)
        return tool

    def _by_id(self, body: Row) -> Tool | None:
        ids = list(_ids(body))
        return next((tool for tool in self.all if tool.tool_id in ids), None) if ids else None

    def _give_result(self, tool: Tool, result: Any) -> None:
        if result is not None:
            tool.result, cut = _bounded(result)
            tool.truncated = tool.truncated or cut or None


def _ids(body: Row) -> Iterator[str]:
    return (value[:MAX_NAME] for key in _IDS if isinstance(value := body.get(key), str) and value)


def _name(body: Row) -> str:
    name = body.get("tool_name") or body.get("tool")
    return name[:MAX_NAME] if isinstance(name, str) else "tool"


def _text(value: Any) -> str | None:
    return value[:MAX_LINE] if isinstance(value, str) and value else None


def _parsed(arguments: Any) -> Any:
    try:
        return orjson.loads(arguments) if isinstance(arguments, str) else arguments
    except orjson.JSONDecodeError:
        return arguments


def _bounded(value: Any) -> tuple[Any, bool]:
    """The value, cut if it is too long or too deep to travel, and whether it was."""
    if isinstance(value, str):
        return (value[:MAX_RESULT], True) if len(value) > MAX_RESULT else (value, False)
    if is_too_deep([[value]], MAX_RESULT):
        return None, True
    if value is None or len(raw := orjson.dumps(value)) <= MAX_RESULT:
        return value, False
    return raw[:MAX_RESULT].decode(errors="ignore"), True
