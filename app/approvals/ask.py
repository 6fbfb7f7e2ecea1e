"""What is asked, who takes the answer, and the payloads that devices see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from app.delivery.drafts import fitting

Kind = Literal["approval", "question"]
Json = dict[str, Any]

MARGIN_S = 3.0  # an answer needs time on its way: later than this before the upstream's own end, none is sent
LINGER_S = 2.0  # and as long after that end the upstream may still think of it as its oldest
MAX_TEXT = 16 * 1024  # bytes, as JSON, of each text that is shown: a kept frame has at most 256 KiB
MAX_TOOL = 256  # characters of its name
MAX_CHOICE = 1024  # characters; a longer one could not be shown whole, and half a choice is none
MAX_CHOICES = 32
MAX_TIMEOUT_S = 7 * 86400.0
FAIL_SAFE = ("once", "deny")  # where an upstream names no choices


@dataclass(frozen=True, slots=True)
class Ask:
    """An approval or a question, as an upstream asks it. `lane` is its session there: approvals of one lane can only
    be answered in the order in which they were asked.
    """

    lane: str
    kind: Kind
    summary: str  # the command, or the question's text
    timeout_s: float  # the upstream's own
    turn_id: str | None = None
    session_id: str | None = None
    tool: str | None = None
    tool_id: str | None = None
    description: str | None = None
    choices: tuple[str, ...] = ()
    ref: str | None = None  # the upstream's own id, where it has one
    chat_id: str | None = None  # where it was asked, if that was in a chat of the messaging gateway
    thread_id: str | None = None


class Asker(Protocol):
    """Takes an answer to whoever asked.

    Raises UpstreamUnreachable, or another RelayError that says so: it was surely not sent. OutcomeUncertain, and
    whatever else: nobody knows.
    """

    async def waits_for(self, tool_id: str) -> bool:
        """False: this tool has its result, so whatever it had asked was answered, although nobody told us."""

    async def decide(self, choice: str) -> int:
        """Answer the oldest approval that waits in its lane. How many it resolved."""

    async def answer(self, ref: str, text: str) -> bool:
        """Answer a question. False: it is not asked any more."""


def bounded(ask: Ask) -> tuple[Ask, bool]:
    """As it can be shown, and whether something was cut."""
    summary = fitting(ask.summary, MAX_TEXT)
    description = None if ask.description is None else fitting(ask.description, MAX_TEXT)
    choices = tuple(choice for choice in ask.choices if 0 < len(choice) <= MAX_CHOICE)[:MAX_CHOICES]
    if ask.kind == "approval" and not choices:
        choices = FAIL_SAFE
    timeout_s = min(max(0.0, ask.timeout_s), MAX_TIMEOUT_S)  # in this order NaN is none
    tool = None if ask.tool is None else ask.tool[:MAX_TOOL]
    cut = replace(ask, summary=summary, description=description, tool=tool, choices=choices, timeout_s=timeout_s)
    return cut, (summary, description) != (ask.summary, ask.description)


def request(ask: Ask, id: str, asked_at: float, expires_at: float, *, cut: bool) -> Json:
    """Of `approval.request`, without its state, or of `question.ask`."""
    about: Json = {"turn_id": ask.turn_id, "session_id": ask.session_id}
    about |= {"chat_id": ask.chat_id} if ask.chat_id else {}
    about |= {"thread_id": ask.thread_id} if ask.thread_id else {}
    if ask.kind == "approval":
        said = {"approval_id": id, **about, "tool": ask.tool, "summary": ask.summary, "choices": list(ask.choices)}
        said |= {"description": ask.description} if ask.description else {}
    else:
        said = {"question_id": id, **about, "text": ask.summary}
        said |= {"choices": list(ask.choices)} if ask.choices else {}
    return said | {"asked_at": asked_at, "expires_at": expires_at} | ({"truncated": True} if cut else {})


def outcome(kind: Kind, id: str, turn_id: str | None, outcome: str, said: str | None, by: str | None) -> Json:
    """Of `approval.resolved` or `question.closed`. `said` is the choice or the answer, `by` a device."""
    names = ("approval_id", "choice") if kind == "approval" else ("question_id", "answer")
    closed: Json = {names[0]: id, "turn_id": turn_id, "outcome": outcome}
    if said is not None:
        shown = fitting(said, MAX_TEXT)
        closed |= {names[1]: shown} | ({"truncated": True} if shown != said else {})
    return closed if by is None else closed | {"by": by}
