"""Shells on the relay's own host, below sessions."""

from __future__ import annotations

import tracemalloc

from app.terminal.history import History
from app.terminal.local import Local


class Deaf:
    def output(self, data: bytes) -> None: ...

    def ended(self, status: int | None, signal: str | None) -> None: ...


async def test_small_inputs_take_their_size_in_memory() -> None:
    host = Local("/bin/sh", {})
    pty = await host.open(["/bin/sh", "-c", "stty raw -echo; exec sleep 60"], 80, 24, Deaf())
    pty.write(b"x" * 100_000)  # nobody reads it
    tracemalloc.start()
    for _ in range(100_000):
        pty.write(b"x")
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert pty.unwritten > 100_000
    assert grown < 1024 * 1024
    await host.close()


def test_small_outputs_take_their_size_in_memory() -> None:
    history = History()
    tracemalloc.start()
    for n in range(100_000):
        history.add(chr(0x2800 + n % 200))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 1024 * 1024
