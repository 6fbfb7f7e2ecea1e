"""Where shells run, and what a shell's terminal is to the relay: the same whether the host is this one or another.

A method raises `TerminalUnavailable` when the host cannot be reached or refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Hearer(Protocol):
    """Who hears a terminal. Called on the event loop."""

    def output(self, data: bytes) -> None: ...

    def ended(self, status: int | None, signal: str | None) -> None:
        """Called once, after the last output: the exit status, or the name of the signal ("SIGKILL"), where known."""


class Pty(Protocol):
    """One terminal with a program in it."""

    pid: int | None  # None where the host does not say

    @property
    def unwritten(self) -> int:
        """Bytes that `write` accepted and the terminal has not yet taken."""

    def write(self, data: bytes) -> None:
        """Queue input: in order, never cut."""

    def resize(self, cols: int, rows: int) -> None: ...

    def pause(self) -> None:
        """Stop reading, so that the program waits when its terminal is full; `resume` goes on."""

    def resume(self) -> None: ...

    def close(self) -> None:
        """Hang up; `ended` follows."""


class Host(Protocol):
    """Where shells run."""

    name: str  # "local" | "ssh"
    shell: str

    async def run(self, argv: Sequence[str], *, timeout_s: float = 10) -> tuple[int, bytes]:
        """Run a short command: its exit status, and what it wrote to stdout and stderr."""

    async def open(self, argv: Sequence[str] | None, cols: int, rows: int, hearer: Hearer) -> Pty:
        """Start a program in a new terminal; None: the login shell."""

    async def close(self) -> None:
        """End what is still open and return when it is gone."""
