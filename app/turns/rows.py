"""What the stored rows of a conversation hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.turns.text import Text


def words_of(content: Any) -> str:
    """The text of a message, whichever way it is written."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def text_of_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """The text that assistant rows amount to. A row goes on where the one before was cut off."""
    text = Text()
    for row in rows:
        if row.get("role") == "assistant":
            text.add(words_of(row.get("content")))
            if row.get("tool_calls"):
                text.end_segment()
    return str(text)


def reasoning_of_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    found = (row.get("reasoning") or row.get("reasoning_content") for row in rows if row.get("role") == "assistant")
    return "\n\n".join(thought for thought in found if isinstance(thought, str) and thought)
