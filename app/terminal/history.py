"""What a shell that the relay holds has written, the newest part: shown again to who comes back, and read by line."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from app.terminal.text import lines, without_questions

MAX_CHARACTERS = 512 * 1024
JOINED = 4 * 1024  # characters up to which texts are kept as one: of one character each takes fifty bytes more
PIECE = 64 * 1024  # characters of what is shown again in one frame

_SWITCH = re.compile(r"\x1b\[\?(?:1049|1047|47)([hl])")
_CLEAR = "\x1b[!p\x1b[0m\x1b[H\x1b[2J"
_FULL_SCREEN = "\x1b[?1049h\x1b[0m\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Page:
    """`lines` begin with number `first`; of `total` lines those before `oldest` are gone."""

    first: int
    lines: list[str]
    oldest: int
    total: int


def bounds(oldest: int, total: int, before: int | None, count: int) -> tuple[int, int]:
    """(first, end) of a page: the `count` lines before number `before`, or the newest."""
    end = max(oldest, total if before is None else min(before, total))
    return max(oldest, end - count), end


class History:
    def __init__(self) -> None:
        self._texts: deque[str] = deque()
        self._size = 0
        self._gone = 0  # lines
        self._cut = False  # the first line that is kept has lost its beginning
        self.full_screen = False  # a program has the whole screen, and draws it itself

    @property
    def is_empty(self) -> bool:
        return not self._texts

    def add(self, text: str) -> None:
        if self._texts and len(self._texts[-1]) + len(text) <= JOINED:
            self._texts[-1] += text
        else:
            self._texts.append(text)
        self._size += len(text)
        while self._size > MAX_CHARACTERS and len(self._texts) > 1:
            dropped = self._texts.popleft()
            self._size -= len(dropped)
            self._gone += dropped.count("\n")
            self._cut = not dropped.endswith("\n")
        if "\x1b[?" in text:
            for switch in _SWITCH.finditer(text):
                self.full_screen = switch[1] == "h"

    def again(self) -> tuple[str, ...]:
        """To be shown on a screen with anything on it."""
        if self.full_screen:
            return (_FULL_SCREEN,)
        return _CLEAR, *_pieces(without_questions(self._whole_lines()[1]))

    def page(self, before: int | None, count: int) -> Page:
        oldest, text = self._whole_lines()
        found = lines(text)
        total = oldest + len(found)
        first, end = bounds(oldest, total, before, count)
        return Page(first, found[first - oldest : end - oldest], oldest, total)

    def _whole_lines(self) -> tuple[int, str]:
        """(number of the first line, text)"""
        text = "".join(self._texts)
        if not self._cut:
            return self._gone, text
        start = text.find("\n") + 1
        return self._gone + (start > 0), text[start:]


def _pieces(text: str) -> Iterator[str]:
    """Each ends with a line, where one is short enough."""
    start = 0
    while start < len(text):
        end = min(start + PIECE, len(text))
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end
