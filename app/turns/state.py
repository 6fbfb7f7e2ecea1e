"""A turn as its events make it (fold.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.turns.text import Text
from app.turns.tools import Tools

Json: TypeAlias = dict[str, Any]
Event: TypeAlias = tuple[int, str, Json]  # n, name, payload

MAX_SAID = 16 * 1024 * 1024  # characters of text and thoughts of one turn: far above what anybody reads


@dataclass(slots=True)
class TurnState:
    """`finish` is None until the turn has an end; `n` is the number of the last event given out."""

    session_id: str
    started_at: float
    n: int = 0
    text: Text = field(default_factory=Text)
    reasoning: list[str] = field(default_factory=list)
    tools: Tools = field(default_factory=Tools)
    usage: Json | None = None
    finish: str | None = None  # completed, stopped, interrupted, failed or uncertain
    error: Json | None = None
    done: bool = False  # `done` was given out: nothing follows
    run_id: str | None = None  # upstream's
    message_id: str | None = None
    dropped: int = 0  # events that are not this turn's, or make no sense
    stopping: bool = False  # its owner stopped it: an interruption is what was asked for
    gap: bool = False  # not all was heard: the history is to be asked at the end
    asking: bool = False  # it has asked its owner something: what comes next may say that it was answered
    room: int = MAX_SAID  # for more text and thoughts; below zero some were left out
    signs: list[tuple[str, Json]] = field(default_factory=list)  # of asking and going on; whoever reads them empties it
    asks: Callable[[], list[Json]] = list  # what is open now
    _first_session: str = ""
    _held: Json | None = None  # assistant.completed, until it is clear that it is no failure

    def __post_init__(self) -> None:
        self._first_session = self.session_id

    def bind(self, session_id: str) -> None:
        self.session_id = self._first_session = session_id

    def snapshot(self) -> Json:
        """`state` of a turn.snapshot."""
        return {
            "text": str(self.text), "reasoning": "".join(self.reasoning), "tools": self.tools.as_json(),
            "approvals": self.asks(), "started_at": self.started_at,
        } | ({"gap": True} if self.gap else {}) | ({"truncated": True} if self.room < 0 else {})  # fmt: skip

    def checkpoint(self) -> Json:
        """What is stored of it every few seconds: without what its tools gave and were given, which the history has."""
        tools = [tool.as_json("preview", "error", "duration_s", "at") for tool in self.tools.all]
        return {
            "text": str(self.text), "reasoning": "".join(self.reasoning), "tools": tools,
            "started_at": self.started_at, "n": self.n, "session_id": self.session_id,
        }  # fmt: skip

    def emit(self, name: str, payload: Json) -> Event:
        self.n += 1
        return self.n, name, payload

    def restate(self, text: str) -> None:
        """This is the answer so far, and not all before it was heard."""
        self.gap, self.text = True, Text()
        self.text.add(text)

    def restore(self, progress: Mapping[str, Any]) -> None:
        """As it was at a checkpoint; what came after it was not heard."""
        self.restate(progress.get("text") or "")
        self.text.end_segment()
        self.reasoning = [thought] if (thought := progress.get("reasoning")) else []
        self.tools = Tools.restored(progress.get("tools") or ())
        self.n, self.started_at = progress.get("n") or 0, progress.get("started_at") or self.started_at
