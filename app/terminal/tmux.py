"""Sessions in the user's own tmux: they outlive the relay, and a person at the host attaches with `tmux attach`.

Each device has a tmux client of its own. So tmux draws the screen when one attaches, each is as fast as its own line,
and the window has the size of the client that was used last, also when that is one the relay knows nothing of.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.clock import Clock
from app.terminal.bare import write
from app.terminal.errors import TerminalExists, TerminalUnavailable, TerminalUnknown
from app.terminal.history import Page, bounds
from app.terminal.host import Host, Pty
from app.terminal.stream import Stream
from app.terminal.view import Ended, View

ANSWER_S = 10.0
PAUSE_S = 2.0  # after a command that got no answer, until the next one asks again
MAX_COMMANDS = 4  # at a time: on the local host each has a thread of a pool that looking up a name needs too
PREFIX = "hermes-"  # of a session's name in tmux; others are none of ours
_TMUX = ("tmux", "-u")  # whatever the locale says, a character is UTF-8

# tmux does not say with which status a shell has ended. What runs in the pane asks tmux to let its clients end with it,
# and to forget the session in the same breath: who hears of the end may begin another of that name at once.
_SHELL = (
    'command -v setpriv >/dev/null && set -- setpriv --pdeathsig HUP "$@"; '
    'trap : INT QUIT; "$@"; s=$?; '
    "set -- $(tmux display-message -p '#{session_windows} #{window_panes} #{session_id}'); "
    '[ "$1 $2" = "1 1" ] && tmux detach-client -s "$3" -E "exit $s" \\; kill-session -t "$3"; exit $s'
)

_GOES = (
    b"server exited"  # its last session has ended, and who asked in that moment gets no answer: the next has a server
)
_ROW = "#{session_attached} #{session_windows} #{session_created} #{pane_pid} #{session_name}"
_PLACE = "#{history_size} #{cursor_y} #{pane_pid}"


@dataclass(frozen=True, slots=True)
class Row:
    """One session of a list."""

    name: str
    attached: int
    windows: int
    created_at: int
    pid: int | None
    in_tmux: bool = True


class Tmux:
    """`name` is always one that service.py has checked: letters, digits, - and _, so that no target says more."""

    def __init__(self, host: Host, clock: Clock) -> None:
        self._host, self._clock = host, clock
        self._there = False
        self._turns = asyncio.Semaphore(MAX_COMMANDS)
        self._failure: TerminalUnavailable | None = None
        self._failed_at = 0.0  # monotonic

    async def _run(self, argv: list[str]) -> tuple[int, bytes]:
        """Who waits behind a command that gets no answer shares its failure: each would wait as long again.

        Raises TerminalUnavailable.
        """
        async with self._turns:
            if self._failure is not None and self._clock.monotonic() - self._failed_at < PAUSE_S:
                raise type(self._failure)(self._failure.message)
            begun = self._clock.monotonic()
            try:
                return await self._host.run(argv, timeout_s=ANSWER_S)
            except TerminalUnavailable as exc:
                now = self._clock.monotonic()
                if now - begun > ANSWER_S / 2:  # one that comes at once may be over, and costs nobody time
                    self._failure, self._failed_at = exc, now
                raise

    async def available(self) -> bool:
        """Asked again while it is not there: it may be installed. Raises TerminalUnavailable."""
        if not self._there:
            status, _ = await self._run(["tmux", "-V"])
            self._there = status == 0
        return self._there

    async def sessions(self) -> list[Row]:
        status, output = await self._run([*_TMUX, "list-sessions", "-F", _ROW])
        rows = [line.split(" ", 4) for line in output.decode("utf-8", "replace").splitlines()] if status == 0 else []
        return [
            Row(row[4].removeprefix(PREFIX), int(row[0]), int(row[1]), int(row[2]), int(row[3]))
            for row in rows
            if len(row) == 5 and row[4].startswith(PREFIX) and all(part.isdecimal() for part in row[:4])
        ]

    async def find(self, name: str) -> int | None:
        """The pid of the session's program; None: there is no such session."""
        place = await self._place(name)
        return None if place is None else place[2]

    async def create(self, name: str, size: tuple[int, int]) -> int:
        """Returns the pid. Raises TerminalUnavailable."""
        target = _pane(name)
        options = (
            ("status", "off"), ("mouse", "on"), ("destroy-unattached", "off"), ("detach-on-destroy", "on"),
        )  # fmt: skip
        argv = [*_TMUX, "new-session", "-d", "-s", PREFIX + name, "-x", str(size[0]), "-y", str(size[1])]
        argv += ["-P", "-F", "#{pane_pid}", "/bin/sh", "-c", _SHELL, "sh", self._host.shell or "/bin/sh", "-l"]
        for option, value in options:
            argv += [";", "set-option", "-t", target, option, value]
        argv += [";", "set-option", "-w", "-t", target, "window-size", "latest"]
        status, output = await self._run(argv)
        if status != 0 and _GOES in output:
            status, output = await self._run(argv)
        pid = output.split(b"\n", 1)[0]
        if not pid.isdigit():
            reason = output.decode("utf-8", "replace").strip()[:200]
            raise TerminalUnavailable("tmux cannot start a session", detail=f"{status}: {reason}")
        return int(pid)

    async def attach(self, name: str, size: tuple[int, int], stream: Stream) -> Pty:
        return await self._host.open([*_TMUX, "attach-session", "-E", "-t", f"={PREFIX}{name}"], *size, stream)

    async def rename(self, name: str, new: str) -> None:
        status, output = await self._run([*_TMUX, "rename-session", "-t", _pane(name), PREFIX + new])
        if status != 0:
            raise TerminalExists() if b"duplicate" in output else TerminalUnknown()

    async def kill(self, name: str) -> bool:
        """False: there is no such session."""
        status, _ = await self._run([*_TMUX, "kill-session", "-t", f"={PREFIX}{name}"])
        return status == 0

    async def page(self, name: str, before: int | None, count: int) -> Page:
        """Down to the cursor's line. Raises TerminalUnknown."""
        place = await self._place(name)
        if place is None:
            raise TerminalUnknown()
        history, cursor, _ = place
        total = history + cursor + 1
        first, end = bounds(0, total, before, count)
        if first == end:
            return Page(first, [], 0, total)
        where = ["-S", str(first - history), "-E", str(end - 1 - history)]
        status, output = await self._run([*_TMUX, "capture-pane", "-p", "-e", "-t", _pane(name), *where])
        if status != 0:
            raise TerminalUnknown()
        return Page(first, output.decode("utf-8", "replace").removesuffix("\n").split("\n"), 0, total)

    async def _place(self, name: str) -> tuple[int, int, int] | None:
        """(lines above the screen, the cursor's row, pid)"""
        status, output = await self._run([*_TMUX, "display-message", "-p", "-t", _pane(name), _PLACE])
        parts = output.split()  # for a session that is not there: nothing, and status 0
        if status != 0 or len(parts) != 3 or not all(part.isdigit() for part in parts):
            return None
        return int(parts[0]), int(parts[1]), int(parts[2])


def _pane(name: str) -> str:
    """Exactly this session, its window and pane in use."""
    return f"={PREFIX}{name}:"


class TmuxSession:
    """Implements view.Session. Exists while a device looks at it."""

    def __init__(self, name: str, pid: int, now: float, tmux: Tmux, ended: Ended) -> None:
        self.name, self.created_at, self._tmux, self._gone = name, now, tmux, ended
        self.pid: int | None = pid
        self.killed = False
        self._clients: dict[View, tuple[Stream, Pty]] = {}

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(self._clients)

    @property
    def is_held(self) -> bool:
        return bool(self._clients)

    async def open(self, view: View) -> None:
        stream = Stream(lambda status, signal: self._ended(view, status, signal))
        stream.add(view)
        pty = await self._tmux.attach(self.name, view.size, stream)
        self._clients[view] = stream, pty
        stream.reads(pty)
        if stream.over:
            del self._clients[view]

    def write(self, view: View, data: bytes) -> None:
        if (client := self._clients.get(view)) is not None:
            write(client[1], data)

    def resize(self, view: View) -> None:
        if (client := self._clients.get(view)) is not None:
            client[1].resize(*view.size)

    def detach(self, view: View) -> None:
        if (client := self._clients.pop(view, None)) is not None:
            client[0].remove(view)
            client[1].close()

    def _ended(self, view: View, status: int | None, signal: str | None) -> None:
        """Its client has: the session has ended, or somebody at the host has detached it."""
        self._clients.pop(view, None)
        self._gone(self, (view,))
        reason = "client kill" if self.killed else "pty closed"
        view.end(reason, {"status": status, "signal": signal})
