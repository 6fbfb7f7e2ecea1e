"""A conversation that is open on the dashboard: its state, and its turns in the words of the dashboard's events."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from app.demo.asks import CHOICES
from app.demo.dashboard import shapes
from app.demo.dashboard.socket import Socket
from app.demo.reading import read_script
from app.demo.refusal import Refusal
from app.demo.script import Approval, Call, Question
from app.demo.surface import Surface
from app.demo.turn import Turn

if TYPE_CHECKING:
    from app.demo.dashboard.registry import Dashboard

MUSING = "(´･_･`) mulling..."


class Live(Surface):
    """Named by 8 hex digits for as long as it is open. The stored session behind it may change: compression.

    One client at a time gets its events: the last one to resume or to submit. Without one they go nowhere.
    """

    asks_approvals = True
    asks_questions = True
    stride = 64

    def __init__(self, dashboard: Dashboard, live_id: str, stored_id: str, *, model: str, title: str | None) -> None:
        self.lane = self.id = live_id
        self.stored_id = stored_id
        self.model = model
        self.socket: Socket | None = None
        self.turn: Turn | None = None
        self.queued: tuple[str, Socket] | None = None
        self.started_at = self.last_active = dashboard.agent.clock.now()
        self.usage = shapes.Usage(model)
        self.known = 0  # stored rows of the turns that have ended
        self._agent = dashboard.agent
        self._dashboard = dashboard
        self._title = title
        self._said: list[str] = []
        self._thinking = False
        self._delta_head = b'{"jsonrpc":"2.0","method":"event","params":{"type":"message.delta","session_id":"%b",' % (
            live_id.encode()
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        session = self._agent.history.find(self.stored_id)
        return [] if session is None else session.rows

    @property
    def title(self) -> str:
        session = self._agent.history.find(self.stored_id)
        return (session.title if session else self._title) or ""

    @property
    def status(self) -> str:
        return "waiting" if self._agent.asks.is_asking(self.lane) else "working" if self.turn else "idle"

    @property
    def inflight(self) -> dict[str, Any] | None:
        if self.turn is None:
            return None
        return {"assistant": "".join(self._said), "streaming": True, "user": self.turn.message}

    def submit(self, text: str, socket: Socket) -> str:
        """`streaming`; or `queued`, which interrupts the turn that runs and is the next one. Raises Refusal."""
        self.socket = socket
        self._agent.submitted(self.stored_id, text)
        self.last_active = self._agent.clock.now()
        if self.turn is None:
            self._begin(text)
            return "streaming"
        if self.queued is not None:
            self._agent.refused()
            text = f"{self.queued[0]}\n\n{text}"
        self.queued = text, socket
        self.turn.interrupt()
        return "queued"

    def interrupt(self) -> None:
        """What is queued is dropped, and what is asked is denied."""
        if self.queued is not None:
            self.queued = None
            self._agent.refused()
        if self.turn is not None:
            self.turn.interrupt()

    def rename(self, title: str) -> None:
        """The stored session comes into being with it. Raises Refusal."""
        self._store()
        self._agent.history.patch(self.stored_id, {"title": title})
        self.tell()

    def tell(self) -> None:
        self._event("session.info", shapes.info(self))

    def _begin(self, text: str) -> None:
        script = read_script(text)
        if script.refuse is not None:
            self._agent.refused()
            raise Refusal(script.refuse, f"the stand-in was asked to refuse with {script.refuse}", None)
        self._store()
        self._said.clear()
        self.known = len(self.rows)
        self.turn = self._agent.begin(self.stored_id, text, script, self)

    def _store(self) -> None:
        if self._agent.history.find(self.stored_id) is None:
            session = self._agent.history.create(session_id=self.stored_id, source="tui")
            session.model = self.model
            with suppress(Refusal):  # a title that is taken is not used, and nobody hears of it
                self._agent.history.patch(self.stored_id, {"title": self._title})

    def began(self, turn: Turn) -> None:
        self.tell()
        self._event("message.start")

    def thinks(self) -> None:
        self._thinking = True
        self._event("thinking.delta", {"text": MUSING})

    def reasoned(self, text: str) -> None:
        self._think_no_more()
        self._event("reasoning.delta", {"text": text})

    def said(self, text: str) -> None:
        self._think_no_more()
        self._said.append(text)
        if self.socket is not None:
            self.socket.send(self._delta_head + b'"payload":{"text":%b}}}' % orjson.dumps(text))

    def wrote(self, text: str, calls: tuple[Call, ...]) -> None:
        self._think_no_more()
        for call in calls:
            self._event("tool.generating", {"name": call.name})
        self._event("thinking.delta", {"text": ""})
        if text:
            self._event("reasoning.available", {"text": text[:500]})
        if text and calls:
            self._event("message.interim", {"text": text, "already_streamed": True})

    def tool_began(self, call: Call, call_id: str) -> None:
        about = {"tool_id": call_id, "name": call.name}
        self._event("tool.start", about | {"context": shapes.context(call.name, call.preview)})

    def tool_ended(self, call: Call, call_id: str, result: str, seconds: float) -> None:
        about = {"tool_id": call_id, "name": call.name, "args": dict(call.args), "duration_s": seconds}
        self._event("tool.complete", about | {"result": orjson.loads(result)})

    def approval_asked(self, call: Call) -> None:
        if isinstance(call.ask, Approval):
            self._event("approval.request", call.ask.as_json() | {"choices": list(CHOICES)})

    def question_asked(self, question: Question, request_id: str) -> None:
        choices = list(question.choices) or None
        about = {"question": question.text, "choices": choices, "request_id": request_id}
        self._event("clarify.request", about)

    def unknown(self) -> None:
        self._event("memory.updated", {"name": "MEMORY.md"})
        self._event("custom.preview", {"detail": {"of": ["an", "unknown", "family"]}})

    def cut(self) -> None:
        if self.socket is not None:
            self.socket.hang_up()

    def lost(self) -> None:
        self._dashboard.forget(self)

    def completed(self, turn: Turn) -> None:
        self._follow(turn)
        self.usage.count(turn.usage, turn.calls)
        self._complete(turn, "complete")

    def interrupted(self, turn: Turn) -> None:
        self._event("thinking.delta", {"text": ""})
        self._complete(turn, "interrupted")

    def failed(self, turn: Turn, text: str) -> None:
        self._think_no_more()
        self._event("status.update", {"kind": "lifecycle", "text": f"❌ Non-retryable error: {text}"})
        self._complete(turn, "error")

    def crashed(self, text: str) -> None:
        self._event("error", {"message": text})

    def ended(self) -> None:
        """Says that it is idle, gives the conversation a title, and begins what is queued."""
        turn, self.turn = self.turn, None
        self.last_active = self._agent.clock.now()
        if not self._agent.is_running:
            return
        if turn is not None:
            self._follow(turn)
        self.tell()
        if turn is not None:
            self._name(turn.message)
        if self.queued is not None:
            (text, self.socket), self.queued = self.queued, None
            with suppress(Refusal):
                self._begin(text)

    async def room(self) -> None:
        if self.socket is not None:
            await self.socket.room()

    def _follow(self, turn: Turn) -> None:
        """To where compression has moved the conversation."""
        if turn.session_id != self.stored_id:
            self.stored_id = turn.session_id
            self.usage.compressions += 1

    def _name(self, message: str) -> None:
        """After one of the first two turns, as in Hermes."""
        session = self._agent.history.find(self.stored_id)
        if session is None or session.title or sum(row["role"] == "user" for row in session.rows) > 2:
            return
        title = self._agent.history.free_title(shapes.title_of(message))
        self._agent.history.patch(self.stored_id, {"title": title})
        self._event("session.title", {"session_id": self.stored_id, "title": title})

    def _complete(self, turn: Turn, status: str) -> None:
        payload: dict[str, Any] = {"text": turn.content or None, "usage": self.usage.as_json(), "status": status}
        if turn.reasoning and status == "complete":
            payload["reasoning"] = turn.reasoning
        self._event("message.complete", payload)

    def _think_no_more(self) -> None:
        if self._thinking:
            self._thinking = False
            self._event("thinking.delta", {"text": ""})

    def _event(self, type_: str, payload: Mapping[str, Any] | None = None) -> None:
        if self.socket is None:
            return
        params: dict[str, Any] = {"type": type_, "session_id": self.id}
        if payload is not None:
            params["payload"] = payload
        self.socket.send_json({"jsonrpc": "2.0", "method": "event", "params": params})
