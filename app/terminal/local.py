"""Shells on the relay's own host, in terminals that the relay opens."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import pwd
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from app.terminal.errors import TerminalUnavailable
from app.terminal.host import Hearer

READ_BYTES = 64 * 1024  # in one pass of the loop: then others have their turn
WRITE_BYTES = 16 * 1024  # more than a terminal takes at once
LAST_OUTPUT_S = 0.3  # for what the program wrote last, where another still holds its terminal
HANG_UP_S = 2.0  # for a program to end when its terminal is gone; then it is killed
NOT_FOUND = 127  # as a shell says it

# A session leader that opens a terminal gets it as its own. Python could do this between fork and exec only, where no
# Python of a process with threads should run.
_OWN_TERMINAL = 'exec <>"$0" >&0 2>&1; exec "$@"'


class Local:
    """`environ` is what shells inherit."""

    name = "local"

    def __init__(self, shell: str | None, environ: Mapping[str, str]) -> None:
        user = pwd.getpwuid(os.getuid())
        self.shell = shell or user.pw_shell or "/bin/sh"
        self._environ = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": self.shell}
        self._environ |= {"LANG": "C.UTF-8"} | dict(environ) | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        for name in ("TMUX", "TMUX_PANE"):  # a relay that was started in tmux is no reason to nest
            self._environ.pop(name, None)
        self._home = home if Path(home := self._environ["HOME"]).is_dir() else "/"
        self._open: set[LocalPty] = set()

    # Not by asyncio: uvloop's children inherit the other ends of their own pipes, and a tmux server that one of them
    # starts would hold them open for ever.

    async def run(self, argv: Sequence[str], *, timeout_s: float = 10) -> tuple[int, bytes]:
        def work() -> tuple[int, bytes]:
            done = subprocess.run(  # noqa: S603 - a device says nothing of it unchecked
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s,
                env=self._environ, cwd=self._home, check=False,
            )  # fmt: skip
            return done.returncode, done.stdout

        try:
            return await asyncio.to_thread(work)
        except FileNotFoundError:
            return NOT_FOUND, b""
        except subprocess.TimeoutExpired:
            raise TerminalUnavailable(f"{argv[0]} did not answer in {timeout_s:.0f} s") from None
        except OSError as exc:
            raise TerminalUnavailable(f"{argv[0]} cannot be started: {exc.strerror}") from exc

    async def open(self, argv: Sequence[str] | None, cols: int, rows: int, hearer: Hearer) -> LocalPty:
        try:
            ours, theirs = pty.openpty()
        except OSError as exc:
            raise TerminalUnavailable(f"no terminal can be opened: {exc.strerror}") from exc
        try:
            os.set_blocking(ours, False)
            _set_size(ours, cols, rows)
            process = self._start(argv or (self.shell, "-l"), theirs)
            opened = LocalPty(ours, process, os.pidfd_open(process.pid), hearer, self._open.discard)
        except OSError as exc:
            os.close(ours)
            raise TerminalUnavailable(f"no shell can be started: {exc.strerror}") from exc
        finally:
            os.close(theirs)
        self._open.add(opened)
        return opened

    def _start(self, argv: Sequence[str], terminal: int) -> subprocess.Popen[bytes]:
        """Takes a millisecond or two of the loop's."""
        return subprocess.Popen(  # noqa: S603 - the shell of the settings, or tmux
            ["/bin/sh", "-c", _OWN_TERMINAL, os.ttyname(terminal), *argv],
            stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
            env=self._environ, cwd=self._home,
        )  # fmt: skip

    async def close(self) -> None:
        waiting = [opened.gone for opened in self._open]
        for opened in list(self._open):
            opened.close()
        await asyncio.gather(*waiting)


class LocalPty:
    """Implements host.Pty."""

    def __init__(
        self, fd: int, process: subprocess.Popen[bytes], exit_fd: int, hearer: Hearer,
        forget: Callable[[LocalPty], None],
    ) -> None:  # fmt: skip
        self.pid: int | None = process.pid
        self._fd, self._process, self._exit_fd, self._hearer, self._forget = fd, process, exit_fd, hearer, forget
        self._loop = asyncio.get_running_loop()
        self.gone = self._loop.create_future()  # `ended` has been called
        self._queue = bytearray()  # one, however small the pieces: each of its own would take a hundred bytes more
        self._paused = self._silent = False  # silent: nothing more will come
        self._late: asyncio.TimerHandle | None = None
        self._loop.add_reader(fd, self._readable)
        self._loop.add_reader(exit_fd, self._exited)

    def _exited(self) -> None:
        self._loop.remove_reader(self._exit_fd)
        os.close(self._exit_fd)
        self._process.wait()
        if self._silent:
            self._end()
        else:
            self._late = self._loop.call_later(LAST_OUTPUT_S, self._last)

    # output

    def pause(self) -> None:
        if not self._paused and not self._silent:
            self._paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if self._paused and not self._silent:
            self._paused = False
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        pieces, size, over = [], 0, False
        while size < READ_BYTES:
            try:
                piece = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:  # EIO: nobody holds the other side any more
                piece = b""
            if not piece:
                over = True
                break
            pieces.append(piece)
            size += len(piece)
        if pieces:
            self._hearer.output(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if over:
            self._hang_up()

    def _last(self) -> None:
        """The program has ended and something else holds its terminal, or whoever hears it has no room yet."""
        if self._paused and not self._silent:
            self._late = self._loop.call_later(LAST_OUTPUT_S, self._last)
        elif not self._silent:
            self._hang_up()

    # input

    @property
    def unwritten(self) -> int:
        return len(self._queue)

    def write(self, data: bytes) -> None:
        if self._silent or not data:
            return
        waits = bool(self._queue)
        self._queue += data
        if not waits:
            self._writable()
            if self._queue:
                self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        try:
            while self._queue:
                del self._queue[: os.write(self._fd, self._queue[:WRITE_BYTES])]
        except BlockingIOError:
            return
        except OSError:  # the other side is gone: reading says so too
            self._queue.clear()
        self._loop.remove_writer(self._fd)

    def resize(self, cols: int, rows: int) -> None:
        if not self._silent:
            _set_size(self._fd, cols, rows)

    # the end

    def close(self) -> None:
        if not self._silent:
            self._hang_up()

    def _hang_up(self) -> None:
        """Our side is closed: what runs there gets SIGHUP."""
        self._silent = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._queue.clear()
        os.close(self._fd)
        if self._process.returncode is not None:
            self._end()
        else:
            self._late = self._loop.call_later(HANG_UP_S, self._kill)

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self) -> None:
        if self._late is not None:
            self._late.cancel()
        if self.gone.done():
            return
        self.gone.set_result(None)
        self._forget(self)
        code = self._process.returncode
        died = code is not None and code < 0
        self._hearer.ended(None if died else code, signal.Signals(-code).name if code is not None and died else None)


def _set_size(fd: int, cols: int, rows: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
