"""A turn as its events make it. `fold` is pure: the same events give the same state and the same frames.

It takes the words of app/hermes/upstream.py and gives what the wire promises; both are tables of event names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import orjson

from app.turns.errors import AgentFailed, described, model_failed
from app.turns.rows import reasoning_of_rows, text_of_rows, words_of
from app.turns.state import Event, Json, TurnState
from app.turns.text import GAP
from app.turns.tools import Tool

# Fields of every upstream event that the wire's own frame carries.
_FRAME = frozenset({"session_id", "run_id", "seq", "ts"})
# Only these may name another session: then the conversation was moved there.
_MOVING = frozenset({"assistant.completed", "run.completed", "run.failed", "run.cancelled"})
_ENDED = "result", "duration_s", "error", "truncated"  # what is told of a tool that has ended
_ENDING = frozenset({"run.completed", "run.failed", "run.cancelled", "error"})
MAX_USAGE = 4096  # bytes
MAX_ERROR = 4000  # characters of an agent's error
MAX_SESSION = 256  # characters of the id of a session
# How Hermes words it when its model refuses, fails or cannot be reached.
MODEL = re.compile(r"^(HTTP \d{3}\b|API call failed|Error: .*HTTP \d{3}|Error code: \d{3})")
MAX_PASSED = 1024 * 1024  # bytes of an event that is passed on as it came


def fold(state: TurnState, name: str, body: Json | None, now: float) -> Sequence[Event]:
    """Take one upstream event in; returns what watchers are sent for it."""
    if state.done:
        return ()
    if body is None or not _is_ours(state, name, body):
        state.dropped += 1
        return ()
    if state.finish is not None:
        return [_done(state)] if name == "done" else ()
    if name == "assistant.delta":
        return _delta(state, body)
    out = _release(state) if state._held is not None and name not in _ENDING else []
    out.extend(_FOLDS.get(name, _passed)(state, name, body, now))
    return out


def end(state: TurnState, finish: str, error: Json | None = None) -> list[Event]:
    """The events of an end that no stream brought."""
    if state.finish is not None:
        return close(state)
    out = _release(state)
    state.finish, state.error = finish, error
    if finish in ("failed", "uncertain"):
        out.append(state.emit("error", dict(error or {})))
    else:
        flags = {"completed": True} if finish == "completed" else {"completed": False, finish: True}
        out.append(state.emit("run.completed", flags | ({"error": error} if error else {})))
    out.append(_done(state))
    return out


def close(state: TurnState) -> list[Event]:
    """`done`, if the stream ended without saying so."""
    return [] if state.done else [_done(state)]


def _is_ours(state: TurnState, name: str, body: Json) -> bool:
    run, session = body.get("run_id"), body.get("session_id")
    if run != state.run_id and run:
        if state.run_id is not None:
            return False
        state.run_id = str(run)
    if session and session != state.session_id and session != state._first_session:
        if name not in _MOVING or not isinstance(session, str) or len(session) > MAX_SESSION:
            return False
        state.session_id = session
    return True


def _delta(state: TurnState, body: Json) -> Sequence[Event]:
    out = _release(state) if state._held is not None else []
    delta = body.get("delta")
    if type(delta) is str and _has_room(state, delta) and (added := state.text.add(delta)):
        if state.asking:
            state.signs.append(("went_on", {}))
        state.n += 1
        if (message_id := body.get("message_id")) is None:
            out.append((state.n, "assistant.delta", {"delta": added}))
        else:
            out.append((state.n, "assistant.delta", {"message_id": message_id, "delta": added}))
    return out


def _has_room(state: TurnState, delta: str) -> bool:
    """What is said beyond the bound is left out here; the history has it."""
    state.room -= len(delta)
    return state.room >= 0


def _reasoning(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    delta = body.get("delta") or body.get("text")
    if not isinstance(delta, str) or not _has_room(state, delta):
        return []
    state.reasoning.append(delta)
    return [state.emit(name, {"delta": delta})]


def _told(tool: Tool, *fields: str) -> Json:
    """hermes-relay's command tells tools apart by `call_id`."""
    return tool.as_json(*fields) | {"call_id": tool.tool_id}


def _tool_started(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    out = _flush(state, state.text.end_segment())
    tool = state.tools.started(body, now)
    tool.at = len(str(state.text))
    return [*out, state.emit(name, _told(tool, "preview", "args", "truncated"))]


def _tool_ended(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    tool = state.tools.ended(body, now, failed=name == "tool.failed")
    if state.asking:
        state.signs.append(("went_on", {"tool_id": tool.tool_id}))
    name = f"tool.{tool.state}"
    return [state.emit(name, _told(tool, *_ENDED))]


def _tool_progress(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    """That of `_thinking` is a copy of the answer, not reasoning."""
    if body.get("tool_name") == "_thinking":
        return []
    tool = state.tools.running(body)
    return _passed(state, name, ({"tool_id": tool.tool_id} if tool else {}) | body, now)


def _commentary(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    """Words on the way, of later versions; what was streamed already would be said twice."""
    return [] if body.get("already_streamed") is True else _passed(state, name, body, now)


def _asks(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    """What is asked reaches every device as a kept frame, not as an event."""
    if name == "approval.request":
        tool = state.tools.of_request(body)
        body |= {"tool_id": tool.tool_id, "tool_name": tool.tool_name} if tool else {}
    state.signs.append((name, body))
    return []


def _answered(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    state.signs.append(("answered", {}))
    return []


def _assistant_completed(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    """Hermes says an error of the model in the same words, and only the next event tells the two apart."""
    state._held = body
    return []


def _run_started(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    """Without the pictures of the message: they may be larger than a frame."""
    said = body.pop("user_message", None)
    if isinstance(said, Mapping) and (words := words_of(said.get("content"))):
        body["user_message"] = {"role": "user", "content": words}
    return _passed(state, name, body, now)


def _message_started(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    message = body.get("message")
    state.message_id = message.get("id") if isinstance(message, Mapping) else None
    return _passed(state, name, body, now)


def _passed(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    payload = {key: value for key, value in body.items() if key not in _FRAME}
    if len(orjson.dumps(payload)) > MAX_PASSED:
        payload = {"truncated": True}
    return [state.emit(name, payload)]


def _run_completed(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    messages, usage = body.pop("messages", None), body.get("usage")
    rows = [row for row in messages if isinstance(row, dict)] if isinstance(messages, list) else []
    state.usage = usage if isinstance(usage, dict) and len(orjson.dumps(usage)) < MAX_USAGE else None
    if messages == [] and not (state.usage or {}).get("total_tokens"):
        return _failed(state, name, body, now)
    out = _release(state)
    if not state.text and (words := text_of_rows(rows)):
        out += _flush(state, state.text.add(words))
    if not state.reasoning and (thoughts := reasoning_of_rows(rows)):
        out += _reasoning(state, "reasoning.delta", {"delta": thoughts}, now)
    for tool in state.tools.read_results(rows):
        out.append(state.emit(f"tool.{tool.state}", _told(tool, *_ENDED)))
    if body.get("interrupted") is True:
        return [*out, *_interrupted(state)]
    state.finish = "completed"
    return [*out, *_passed(state, name, body, now)]


def _run_cancelled(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    """No end unless its owner stopped it: a Hermes that restarts says so of runs that it still takes to their end."""
    return [*_release(state), *_interrupted(state)] if state.stopping else []


def _interrupted(state: TurnState) -> list[Event]:
    state.finish = "stopped" if state.stopping else "interrupted"
    return [state.emit("run.completed", {"completed": False, state.finish: True})]


def _failed(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    """`error`, run.failed, and run.completed of a turn in which the model said nothing at all."""
    held, state._held = state._held or {}, None
    said = body.get("message") or body.get("error") or held.get("content")
    if isinstance(said, Mapping):
        said = said.get("message")
    said = said[:MAX_ERROR] if isinstance(said, str) else ""
    state.finish, state.error = "failed", described(model_failed(said) if MODEL.search(said) else AgentFailed(said))
    return [state.emit("error", dict(state.error))]


def _no_end(state: TurnState, name: str, body: Json, now: float) -> list[Event]:
    """`done` alone is no end: the history decides, and `done` follows what it says."""
    return []


def _done(state: TurnState) -> Event:
    state.done = True
    return state.emit("done", {})


def _release(state: TurnState) -> list[Event]:
    """Give out the assistant.completed that was held back: it was an answer."""
    held, state._held = state._held, None
    if held is None:
        return []
    content = held.pop("content", None)
    payload = {key: value for key, value in held.items() if key not in _FRAME}
    if isinstance(content, str) and content:  # an interrupted answer may have none: then what was streamed stands
        if not (state.gap and str(state.text).endswith(content.removeprefix(GAP))):
            state.text.replace_segment(content)
        payload["content"] = state.text.last_segment()
    return [state.emit("assistant.completed", payload)]


def _flush(state: TurnState, added: str) -> list[Event]:
    return [state.emit("assistant.delta", {"delta": added})] if added else []


_FOLDS: Mapping[str, Callable[[TurnState, str, Json, float], list[Event]]] = {
    "run.started": _run_started,
    "message.started": _message_started,
    "reasoning.delta": _reasoning,
    "tool.started": _tool_started,
    "tool.completed": _tool_ended,
    "tool.failed": _tool_ended,
    "tool.progress": _tool_progress,
    "assistant.commentary": _commentary,
    "approval.request": _asks,
    "approval.responded": _answered,
    "clarify.request": _asks,
    "assistant.completed": _assistant_completed,
    "run.completed": _run_completed,
    "run.failed": _failed,
    "run.cancelled": _run_cancelled,
    "error": _failed,
    "done": _no_end,
}
