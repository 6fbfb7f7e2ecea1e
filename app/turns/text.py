"""The text of an answer: segments, which tool calls end, joined by a blank line.

A leading blank line of a segment is dropped and nothing else is trimmed; empty segments vanish.
"""

from __future__ import annotations

GAP = "\n\n"


class Text:
    """Grows by deltas. What `add` returns, put together, is `str(text)`, as long as nothing was replaced."""

    __slots__ = ("_closed", "_held", "_pieces", "_started")

    def __init__(self) -> None:
        self._closed: list[str] = []
        self._pieces: list[str] = []
        self._held = ""  # the first half of what may become a leading blank line
        self._started = False  # the segment's leading blank line, if any, is behind us

    def __str__(self) -> str:
        return GAP.join([*self._closed, last] if (last := self._last()) else self._closed)

    def __bool__(self) -> bool:
        return bool(self._closed or self._pieces or self._held)

    def add(self, delta: str) -> str:
        """Append to the segment. Returns what this adds to the whole text."""
        if self._pieces:
            self._pieces.append(delta)
            return delta
        return self._begin(delta)

    def _begin(self, delta: str) -> str:
        if not delta:
            return ""
        if not self._started:
            delta = self._held + delta
            if delta == "\n":
                self._held = delta
                return ""
            self._held, self._started = "", True
            delta = delta.removeprefix(GAP)
        if not delta:
            return ""
        self._pieces.append(delta)
        return GAP + delta if self._closed else delta

    def end_segment(self) -> str:
        """A tool call comes. Returns what was held back, as `add` would have."""
        held, added = self._held, ""
        if held:
            self._held, self._started = "", True
            added = self._begin(held)
        if last := self._last():
            self._closed.append(last)
        self._pieces, self._started = [], False
        return added

    def replace_segment(self, content: str) -> None:
        """What the agent says the last segment is."""
        content = content.removeprefix(GAP)
        self._pieces, self._held, self._started = [content] if content else [], "", True

    def last_segment(self) -> str:
        return self._last()

    def _last(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return (self._pieces[0] if self._pieces else "") or self._held
