"""What the stored rows of a conversation say about a turn whose stream broke off. Pure, and never by clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.hermes.expanded import is_stored_as
from app.turns.rows import reasoning_of_rows, text_of_rows, words_of
from app.turns.state import TurnState
from app.turns.text import Text
from app.turns.tools import Tools

Row = Mapping[str, Any]
Message = str | Sequence[Mapping[str, Any]]

PICTURE = "[screenshot]"  # what Hermes stores in place of an image
NOTE = "[System"  # how a user row begins that Hermes wrote itself, in the middle of a turn


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rows` are the answer's so far; None where our own row is not there."""

    rows: Sequence[Row] | None
    completed: bool

    @property
    def last_row(self) -> int:
        return max((row["id"] for row in self.rows or () if isinstance(row.get("id"), int)), default=0)


def judge(rows: Sequence[Row], last_row: int, earlier: Sequence[Message], sent: Message) -> Verdict:
    """Find our user row and what answers it.

    `last_row` is the highest id known when the session's rows were read, `earlier` are the messages submitted since,
    in order: each accounts for one row, so that the second of two equal messages is not taken for the first. Where no
    row is left of those before, Hermes compressed the conversation and wrote them all anew: then ours is the last.
    """
    newer = [row for row in rows if isinstance(row.get("id"), int) and row["id"] > last_row]
    written_anew = last_row and len(newer) == len(rows)
    ours = _last(newer, sent) if written_anew else _next(newer, earlier, sent)
    if ours is None:
        return Verdict(None, completed=False)
    answer = []
    for row in newer[ours + 1 :]:
        if row.get("role") == "user" and not words_of(row.get("content")).startswith(NOTE):
            break
        answer.append(row)
    said = [row for row in answer if row.get("role") == "assistant"]
    return Verdict(answer, completed=bool(said) and said[-1].get("finish_reason") == "stop")


def restate(state: TurnState, rows: Sequence[Row], *, completed: bool) -> None:
    """Replace what the events said by what is stored. Of an interrupted turn less may be stored than was streamed."""
    words = text_of_rows(rows)
    if completed or len(words) >= len(str(state.text)):
        state.text = Text()
        state.text.add(words)
    if thoughts := reasoning_of_rows(rows):
        state.reasoning = [thoughts]
    stored = Tools.of_rows(rows, [tool.tool_id for tool in state.tools.all])
    if len(stored.all) >= len(state.tools.all):
        state.tools = stored


def _next(rows: Sequence[Row], earlier: Sequence[Message], sent: Message) -> int | None:
    start = 0
    for message in earlier:
        found = _find(rows, start, message)
        start = start if found is None else found + 1
    return _find(rows, start, sent)


def _last(rows: Sequence[Row], sent: Message) -> int | None:
    found = last = _find(rows, 0, sent)
    while found is not None:
        last, found = found, _find(rows, found + 1, sent)
    return last


def _find(rows: Sequence[Row], start: int, message: Message) -> int | None:
    forms = _stored_forms(message)
    for at in range(start, len(rows)):
        if rows[at].get("role") == "user":
            content = words_of(rows[at].get("content")).strip()
            # Hermes puts the text of a failed turn before the next message, a blank line between.
            if any(content == form or content.endswith("\n\n" + form) for form in forms):
                return at
            if isinstance(message, str) and is_stored_as(message, content):
                return at
    return None


def _stored_forms(message: Message) -> set[str]:
    if isinstance(message, str):
        return {message.strip()}
    texts = [part.get("text") if part.get("type") == "text" else PICTURE for part in message]
    return {"\n".join(str(t) for t in texts).strip(), words_of(list(message)).strip()} - {""}
