"""The JSON-RPC methods of the dashboard's WebSocket that a turn needs. Hermes has about a hundred more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from app.demo.asks import CHOICES
from app.demo.dashboard import shapes
from app.demo.dashboard.live import Live
from app.demo.dashboard.registry import Dashboard
from app.demo.dashboard.socket import Socket
from app.demo.refusal import Refusal

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMS = -32602
NO_LIVE_SESSION = 4001
SESSION_ID_NEEDED = 4006
NO_STORED_SESSION = 4007
NOT_PENDING = 4009
TITLE_NEEDED = 4021
TITLE_REFUSED = 4022
TURN_REFUSED = 5000

Json = dict[str, Any]


class Fault(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Request:
    dashboard: Dashboard
    socket: Socket
    params: Json

    @property
    def live(self) -> Live:
        """The open conversation that is meant."""
        live = self.dashboard.find(self.params.get("session_id"))
        if live is None:
            raise Fault(NO_LIVE_SESSION, "session not found")
        return live


def answer(dashboard: Dashboard, socket: Socket, text: str) -> Json:
    """The response to one frame."""
    try:
        frame = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _fault(None, PARSE_ERROR, "parse error")
    if not isinstance(frame, dict):
        return _fault(None, INVALID_REQUEST, "invalid request: expected an object")
    id_, method, params = frame.get("id"), frame.get("method"), frame.get("params", {})
    if not isinstance(method, str) or not method:
        return _fault(id_, INVALID_REQUEST, "invalid request: method must be a non-empty string")
    if not isinstance(params, dict):
        return _fault(id_, INVALID_PARAMS, "invalid params: expected an object")
    if method not in METHODS:
        return _fault(id_, UNKNOWN_METHOD, f"unknown method: {method}")
    try:
        return {"jsonrpc": "2.0", "id": id_, "result": METHODS[method](Request(dashboard, socket, params))}
    except Fault as fault:
        return _fault(id_, fault.code, fault.message)


def _fault(id_: object, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}


def _create(request: Request) -> Json:
    title, model = request.params.get("title"), request.params.get("model")
    live = request.dashboard.create(request.socket, title=title or None, model=model or None)
    opened = {"session_id": live.id, "stored_session_id": live.stored_id, "message_count": 0, "messages": []}
    return opened | {"info": shapes.lazy_info(live.model)}


def _resume(request: Request) -> Json:
    stored_id = request.params.get("session_id")
    if not stored_id:
        raise Fault(SESSION_ID_NEEDED, "session_id required")
    try:
        live, was_open = request.dashboard.resume(str(stored_id), request.socket)
    except Refusal:
        raise Fault(NO_STORED_SESSION, "session not found") from None
    return shapes.resumed(live, was_open=was_open)


def _active(request: Request) -> Json:
    return {"sessions": [shapes.listed(live) for live in request.dashboard.live()]}


def _history(request: Request) -> Json:
    rows = request.live.rows
    return {"count": len(rows), "messages": shapes.messages(rows)}


def _title(request: Request) -> Json:
    live = request.live
    if "title" not in request.params:
        live.tell()
        return {"title": live.title, "session_key": live.stored_id}
    title = str(request.params["title"] or "").strip()
    if not title:
        raise Fault(TITLE_NEEDED, "title required")
    try:
        live.rename(title)
    except Refusal as refusal:
        raise Fault(TITLE_REFUSED, refusal.message) from None
    return {"pending": False, "title": title}


def _usage(request: Request) -> Json:
    return request.live.usage.as_json()


def _interrupt(request: Request) -> Json:
    request.live.interrupt()
    return {"status": "interrupted"}


def _close(request: Request) -> Json:
    live = request.dashboard.find(request.params.get("session_id"))
    if live is None:
        return {"closed": False}
    live.interrupt()
    live.socket = None
    request.dashboard.forget(live)
    return {"closed": True}


def _submit(request: Request) -> Json:
    live = request.live
    try:
        return {"status": live.submit(str(request.params.get("text", "")), request.socket)}
    except Refusal as refusal:
        raise Fault(TURN_REFUSED, refusal.message) from None


def _decide(request: Request) -> Json:
    """The choice is not checked, as in Hermes; what is none of the known ones denies."""
    live, choice = request.live, str(request.params.get("choice", "deny"))
    every = bool(request.params.get("all"))
    choice = choice if choice in CHOICES else "deny"
    return {"resolved": request.dashboard.agent.asks.decide(live.lane, choice, every=every)}


def _clarify(request: Request) -> Json:
    request_id, said = str(request.params.get("request_id", "")), str(request.params.get("answer", ""))
    if not request.dashboard.agent.asks.answer(request_id, said):
        raise Fault(NOT_PENDING, "no pending answer request")
    return {"status": "ok"}


METHODS: dict[str, Callable[[Request], Json]] = {
    "session.create": _create,
    "session.resume": _resume,
    "session.active_list": _active,
    "session.history": _history,
    "session.title": _title,
    "session.usage": _usage,
    "session.interrupt": _interrupt,
    "session.close": _close,
    "prompt.submit": _submit,
    "approval.respond": _decide,
    "clarify.respond": _clarify,
}
