"""What a terminal writes, on its way to the devices that look at it.

Output leaves at once when little does, and is gathered when there is much. Each piece is encoded once for all views,
and kept until the slowest has it; if that is too much the terminal is read no further, so that what runs in it waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import orjson

from app.terminal.host import Pty
from app.terminal.text import Splitter
from app.terminal.view import View

GATHER_S = 0.005
GATHER_BYTES = 64 * 1024
AT_ONCE = 8 * 1024  # bytes within GATHER_S that are not much yet …
FRAME_COST = 1024  # … where each frame counts as this many more
MAX_KEPT = 512 * 1024  # bytes that the slowest view may lack before the terminal waits for it

Ended = Callable[[int | None, str | None], None]


class Stream:
    """Implements host.Hearer. `keep` gets all text."""

    def __init__(self, ended: Ended, keep: Callable[[str], None] | None = None) -> None:
        self._ended, self._keep = ended, keep
        self._loop = asyncio.get_running_loop()
        self._pty: Pty | None = None
        self._paused = self.over = False
        self._splitter = Splitter()
        self._gathered: list[bytes] = []
        self._bytes = self._spent = 0
        self._window: asyncio.TimerHandle | None = None
        self._kept: deque[bytes] = deque()
        self._kept_bytes = self._first = 0  # number of the first that is kept
        self.views: list[View] = []

    def reads(self, pty: Pty) -> None:
        self._pty = pty
        if self._paused:
            pty.pause()

    def add(self, view: View, texts: tuple[str, ...] = ()) -> None:
        """After `texts` it is shown what comes from now on."""
        self.flush()
        view.position = self._first + len(self._kept)
        view.show(texts, lambda: self._show(view))
        self.views.append(view)

    def remove(self, view: View) -> None:
        view.drop()
        if view in self.views:
            self.views.remove(view)
            self._trim()

    # implements Hearer

    def output(self, data: bytes) -> None:
        self._gathered.append(data)
        self._bytes += len(data)
        little = self._spent + self._bytes + FRAME_COST <= AT_ONCE
        if self._window is None or little or self._bytes >= GATHER_BYTES:
            self.flush()

    def ended(self, status: int | None, signal: str | None) -> None:
        self.over = True
        self.flush()
        self._ended(status, signal)

    # gathering

    def flush(self) -> None:
        """What was gathered, and what is left of it when nothing more comes, goes out now."""
        text = ""
        if self._gathered:
            data = self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered)
            self._spent += self._bytes + FRAME_COST
            self._gathered, self._bytes = [], 0
            text = self._splitter.feed(data)
            if self._window is None:
                self._window = self._loop.call_later(GATHER_S, self._window_is_over)
        if self.over:
            text += self._splitter.flush()
        if text:
            self._say(text)

    def _window_is_over(self) -> None:
        self._window, self._spent = None, 0
        if self._gathered:
            self.flush()

    # showing

    def _say(self, text: str) -> None:
        if self._keep is not None:
            self._keep(text)
        if not self.views:
            return
        body = orjson.dumps(text)
        self._kept.append(body)
        self._kept_bytes += len(body)
        for view in tuple(self.views):
            self._show(view)

    def _show(self, view: View) -> None:
        if view.begins:
            return  # it goes on by itself after what it is shown first
        behind = view.position
        while view.position < self._first + len(self._kept):
            if not view.take(self._kept[view.position - self._first]):
                break
            view.position += 1
        else:
            view.finish()
        if view.position != behind or self._kept_bytes > MAX_KEPT:
            self._trim()

    def _trim(self) -> None:
        """Forget what every view has, and read on or wait."""
        needed = min((view.position for view in self.views), default=self._first + len(self._kept))
        while self._first < needed:
            self._kept_bytes -= len(self._kept.popleft())
            self._first += 1
        wait = self._kept_bytes > (MAX_KEPT // 2 if self._paused else MAX_KEPT)
        if wait != self._paused:
            self._paused = wait
            if self._pty is not None:
                (self._pty.pause if wait else self._pty.resume)()
