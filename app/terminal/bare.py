"""A session without tmux: the relay holds the terminal, and the shell ends with the relay."""

from __future__ import annotations

import asyncio
from typing import Any

from app.terminal.errors import TerminalInputFull
from app.terminal.history import History, Page
from app.terminal.host import Host, Pty
from app.terminal.stream import Stream
from app.terminal.text import is_answer
from app.terminal.view import Ended, View

MAX_UNWRITTEN = 4 * 1024 * 1024  # bytes of input that a shell has not taken: as much as one frame holds
REDRAW_S = 0.05


def write(pty: Pty, data: bytes) -> None:
    """Raises TerminalInputFull; then nothing of `data` is written."""
    if pty.unwritten + len(data) > MAX_UNWRITTEN:
        raise TerminalInputFull()
    pty.write(data)


class BareSession:
    """Implements view.Session. Several devices share one terminal: it has the size of the one that was active last."""

    def __init__(
        self, name: str, size: tuple[int, int], now: float, ended: Ended
    ) -> None:  # fmt: skip
        self.name, self.created_at = name, now
        self.pid: int | None = None
        self.killed = False
        self._gone = ended
        self._end: tuple[str, dict[str, Any]] | None = None
        self.over = asyncio.get_running_loop().create_future()
        self._pty: Pty | None = None
        self._history = History()
        self._stream = Stream(self._ended, self._history.add)
        self._active: list[View] = []  # the latest last
        self._size = size

    @classmethod
    async def start(cls, name: str, host: Host, size: tuple[int, int], now: float, ended: Ended) -> BareSession:
        """Raises TerminalUnavailable."""
        session = cls(name, size, now, ended)
        session._pty = await host.open(None, *size, session._stream)
        session.pid = session._pty.pid
        session._stream.reads(session._pty)
        return session

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(self._active)

    @property
    def is_held(self) -> bool:
        return self._end is None

    async def open(self, view: View) -> None:
        is_new = not self._active and self._history.is_empty
        self._stream.add(view, () if is_new else self._history.again())
        if self._end is not None:
            view.end(*self._end)
            return
        self._active.append(view)
        self._fit(view.size)
        if self._history.full_screen:
            self._have_it_drawn()

    def write(self, view: View, data: bytes) -> None:
        """Every device answers what a program asks its terminal; the program gets the answer of one."""
        assert self._pty is not None
        is_other = bool(self._active) and self._active[-1] is not view
        if is_other and is_answer(data):
            return
        write(self._pty, data)
        if is_other:
            self._active.remove(view)
            self._active.append(view)
            self._fit(view.size)

    def resize(self, view: View) -> None:
        if self._active and self._active[-1] is view:
            self._fit(view.size)

    def detach(self, view: View) -> None:
        self._stream.remove(view)
        if view in self._active:
            self._active.remove(view)
            if self._active:
                self._fit(self._active[-1].size)

    def page(self, before: int | None, count: int) -> Page:
        self._stream.flush()
        return self._history.page(before, count)

    def kill(self) -> None:
        """It is gone when `over` is done."""
        self.killed = True
        assert self._pty is not None
        self._pty.close()

    def _fit(self, size: tuple[int, int]) -> None:
        if self._pty is not None and size != self._size:
            self._size = size
            self._pty.resize(*size)

    def _have_it_drawn(self) -> None:
        """A program draws its screen anew when the size changes, if it sees it change."""
        pty = self._pty
        assert pty is not None
        cols, rows = self._size
        pty.resize(cols, max(1, rows - 1))
        asyncio.get_running_loop().call_later(REDRAW_S, lambda: pty.resize(*self._size))

    def _ended(self, status: int | None, signal: str | None) -> None:
        self._end = "client kill" if self.killed else "pty closed", {"status": status, "signal": signal}
        views, self._active = self._active, []
        self._gone(self, views)
        for view in views:
            view.end(*self._end)
        self.over.set_result(None)
