"""A turn in the words of POST /api/sessions/{id}/chat/stream."""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from app.clock import Clock
from app.demo.asks import CHOICES
from app.demo.runs import RunState
from app.demo.script import Approval, Call
from app.demo.stream import KEEPALIVE, Outlet
from app.demo.turn import Turn

THINKING_CHARS = 500


class SessionStream(RunState):
    """What was thought is in the stored message only, and nobody can be asked anything.

    `is_honest`: as in 0.22, approvals are asked for, and a failure or a stop does not look like success.
    """

    def __init__(self, clock: Clock, session_id: str, outlet: Outlet, *, is_honest: bool = False) -> None:
        super().__init__(clock, session_id)
        self.asks_approvals = self._is_honest = is_honest
        self._outlet = outlet
        self._message_id = f"msg_{uuid.uuid4().hex}"
        self._seq = 0

    def responded(self, choice: str, resolved: int) -> None:
        self.status = "running"
        self._emit("approval.responded", choice=choice, resolved=resolved)

    def began(self, turn: Turn) -> None:
        self._now("running", "run.started")
        self._emit("run.started", user_message={"role": "user", "content": turn.message})

    def replies(self) -> None:
        self._emit("message.started", message={"id": self._message_id, "role": "assistant"})

    def said(self, text: str) -> None:
        self._emit("assistant.delta", message_id=self._message_id, delta=text)

    def wrote(self, text: str, calls: tuple[Call, ...]) -> None:
        """A copy of the text, which Hermes calls thinking."""
        if text:
            self._emit("tool.progress", message_id=self._message_id, tool_name="_thinking", delta=text[:THINKING_CHARS])

    def tool_began(self, call: Call, call_id: str) -> None:
        about = {"message_id": self._message_id, "tool_name": call.name}
        self._emit("tool.started", **about, preview=call.preview, args=dict(call.args))

    def tool_ended(self, call: Call, call_id: str, result: str, seconds: float) -> None:
        self._emit("tool.completed", message_id=self._message_id, tool_name=call.name, preview=None, args=None)

    def approval_asked(self, call: Call) -> None:
        if isinstance(call.ask, Approval):
            self._now("waiting_for_approval", "approval.request")
            about = call.ask.as_json() | {"allow_session": True, "request_id": uuid.uuid4().hex}
            self._emit("approval.request", **about, message_id=self._message_id, choices=list(CHOICES))

    def unknown(self) -> None:
        self._emit("memory.updated", name="MEMORY.md")
        self._emit("custom.preview", detail={"of": ["an", "unknown", "family"]})

    def keepalive(self) -> None:
        self._outlet.write(KEEPALIVE)

    def cut(self) -> None:
        self._outlet.hang_up()

    def completed(self, turn: Turn) -> None:
        self._end(turn, "run.completed")

    def failed(self, turn: Turn, text: str) -> None:
        """Looks like success, but for the messages and the bill."""
        self._end(turn, "run.failed" if self._is_honest else "run.completed")

    def interrupted(self, turn: Turn) -> None:
        """Looks like success, too."""
        self._end(turn, "run.cancelled" if self._is_honest else "run.completed")

    def crashed(self, text: str) -> None:
        self._emit("error", message=text)
        self._emit("done")

    def stopped(self) -> None:
        self._emit("done")

    def ended(self) -> None:
        self._outlet.end()

    async def room(self) -> None:
        await self._outlet.room()

    def _end(self, turn: Turn, event: str) -> None:
        self._now(event.removeprefix("run."), event)
        completed, interrupted = event == "run.completed", event == "run.cancelled"
        flags = {"completed": completed, "partial": False, "interrupted": interrupted}
        ids = {"session_id": turn.session_id, "message_id": self._message_id}
        self._emit("assistant.completed", **ids, content=turn.content, **flags)
        flags = flags if self._is_honest else {"completed": True}
        self._emit(event, **ids, **flags, messages=turn.messages, usage=turn.usage)
        self._emit("done")

    def _emit(self, event: str, **payload: Any) -> None:
        """Every payload ends with the same four fields; numbers go on whether or not anyone listens."""
        self._seq += 1
        if self._outlet.left:
            return
        payload.setdefault("session_id", self.session_id)
        payload["run_id"] = self.id
        payload["seq"] = self._seq
        payload["ts"] = self._clock.now()
        self._outlet.write(b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(payload)))
