"""Who is told what a turn does: one class for each way of running a turn, each in Hermes' words for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.demo.script import Call, Question

if TYPE_CHECKING:
    from app.demo.turn import Turn


class Surface:
    """Hears everything and tells nobody. Nothing here waits, except `room` for a reader that is behind.

    `lane` is where approvals and questions of this turn are answered. Over a surface that cannot ask, a command that
    needs an approval is left pending and a question becomes part of the answer.
    """

    lane = ""
    asks_approvals = False
    asks_questions = False
    stride = 1  # pieces of a bench between two calls of `room`

    def began(self, turn: Turn) -> None: ...

    def replies(self) -> None: ...

    def thinks(self) -> None:
        """A request to the model begins."""

    def reasoned(self, text: str) -> None: ...

    def said(self, text: str) -> None: ...

    def wrote(self, text: str, calls: tuple[Call, ...]) -> None:
        """A request to the model has ended: all of its text, and the tools it wants."""

    def tool_began(self, call: Call, call_id: str) -> None: ...

    def tool_ended(self, call: Call, call_id: str, result: str, seconds: float) -> None: ...

    def approval_asked(self, call: Call) -> None: ...

    def question_asked(self, question: Question, request_id: str) -> None: ...

    def unknown(self) -> None:
        """Events that nobody knows."""

    def keepalive(self) -> None: ...

    def cut(self) -> None:
        """Drop the connection after what has been written."""

    def lost(self) -> None:
        """The agent died with this turn."""

    def completed(self, turn: Turn) -> None: ...

    def failed(self, turn: Turn, text: str) -> None:
        """The model provider refused."""

    def crashed(self, text: str) -> None: ...

    def interrupted(self, turn: Turn) -> None:
        """By whoever asked for it; `turn.content` is what was said until then."""

    def stopped(self) -> None:
        """The agent is told to stop: no end of the turn is heard."""

    def ended(self) -> None:
        """Nothing more comes of this turn, however it went."""

    async def room(self) -> None: ...
