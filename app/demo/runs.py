"""Turns of POST /v1/runs: their state, their events, and who may decide what they ask."""

from __future__ import annotations

import uuid
from typing import Any

import orjson

from app.clock import Clock
from app.demo.about import MODEL
from app.demo.asks import CHOICES
from app.demo.refusal import Refusal
from app.demo.script import Approval, Call
from app.demo.stream import Outlet
from app.demo.surface import Surface
from app.demo.turn import Turn

CLOSED = b": stream closed\n\n"


class RunState(Surface):
    """What Hermes knows of a turn that has a name of its own: what GET /v1/runs/{id} shows, and how it is stopped."""

    def __init__(self, clock: Clock, session_id: str | None) -> None:
        self.lane = self.id = f"run_{uuid.uuid4().hex}"
        self.session_id = session_id or self.id
        self.turn: Turn | None = None
        self.status = "queued"
        self._clock = clock
        self._created = self._updated = clock.now()
        self._last = ""
        self._result: dict[str, Any] = {}

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    def as_json(self) -> dict[str, Any]:
        return {
            "object": "hermes.run",
            "run_id": self.id,
            "status": self.status,
            "updated_at": self._updated,
            "created_at": self._created,
            "session_id": self.session_id,
            "model": MODEL,
            "last_event": self._last,
            **self._result,
        }

    def stop(self) -> None:
        self._now("stopping", "run.stopping")
        if self.turn is not None:
            self.turn.interrupt()

    def responded(self, choice: str, resolved: int) -> None:
        """Somebody has decided what the run asked."""

    def take(self) -> Outlet | None:
        """Its events, for the one reader that they may have."""
        return None

    def _now(self, status: str, event: str) -> None:
        self.status, self._last, self._updated = status, event, self._clock.now()


class Run(RunState):
    """One run."""

    asks_approvals = True

    def __init__(self, clock: Clock, session_id: str | None) -> None:
        super().__init__(clock, session_id)
        self._outlet = Outlet()
        self._is_taken = False

    def take(self) -> Outlet | None:
        is_taken, self._is_taken = self._is_taken, True
        return None if is_taken else self._outlet

    def responded(self, choice: str, resolved: int) -> None:
        self._emit("approval.responded", "running", choice=choice, resolved=resolved)

    def began(self, turn: Turn) -> None:
        self._now("running", "run.started")

    def said(self, text: str) -> None:
        self._emit("message.delta", delta=text)

    def wrote(self, text: str, calls: tuple[Call, ...]) -> None:
        """A copy of the text, which Hermes calls reasoning."""
        if text:
            self._emit("reasoning.available", text=text[:500])

    def tool_began(self, call: Call, call_id: str) -> None:
        self._emit("tool.started", tool=call.name, preview=call.preview)

    def tool_ended(self, call: Call, call_id: str, result: str, seconds: float) -> None:
        failed = orjson.loads(result).get("exit_code", 0) != 0
        self._emit("tool.completed", tool=call.name, duration=round(seconds, 3), error=failed)

    def approval_asked(self, call: Call) -> None:
        if isinstance(call.ask, Approval):
            self._emit("approval.request", "waiting_for_approval", **call.ask.as_json(), choices=list(CHOICES))

    def cut(self) -> None:
        self._outlet.hang_up()

    def completed(self, turn: Turn) -> None:
        self._result = {"output": turn.content, "usage": turn.usage}
        self._emit("run.completed", "completed", **self._result)

    def failed(self, turn: Turn, text: str) -> None:
        self.crashed(text)

    def crashed(self, text: str) -> None:
        self._result = {"error": text}
        self._emit("run.failed", "failed", error=text)

    def interrupted(self, turn: Turn) -> None:
        self._emit("run.cancelled", "cancelled")

    def ended(self) -> None:
        self._outlet.write(CLOSED)
        self._outlet.end()

    async def room(self) -> None:
        await self._outlet.room()

    def _emit(self, event: str, status: str = "", **payload: Any) -> None:
        self._now(status or self.status, event)
        named = {"event": event, "run_id": self.id, "timestamp": self._updated} | payload
        self._outlet.write(b"data: %b\n\n" % orjson.dumps(named))


class Runs:
    """In memory, and gone with the server. Raises Refusal for what Hermes refuses."""

    def __init__(self) -> None:
        self._runs: dict[str, RunState] = {}

    def add(self, run: RunState, turn: Turn) -> None:
        run.turn = turn
        self._runs[run.id] = run

    @property
    def busy(self) -> int:
        return sum(not run.is_over for run in self._runs.values())

    def get(self, run_id: str) -> RunState:
        run = self._runs.get(run_id)
        if run is None:
            raise _unknown(run_id)
        return run

    def running(self, run_id: str) -> RunState:
        run = self.get(run_id)
        if run.is_over:
            raise _unknown(run_id)
        return run

    def read(self, run_id: str) -> Outlet:
        """Its events, once: whoever comes second, or again, finds no run."""
        outlet = self.get(run_id).take()
        if outlet is None:
            raise _unknown(run_id)
        return outlet


def _unknown(run_id: str) -> Refusal:
    return Refusal(404, f"Run not found: {run_id}", "run_not_found")
