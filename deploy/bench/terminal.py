"""The floor of a terminal: a loop that reads and writes a PTY, and nothing else.

`python -m deploy.bench.terminal flood COMMAND` prints {bytes, seconds} of what the command writes;
`python -m deploy.bench.terminal echo COUNT COMMAND` prints {ms: […]}, one figure for each key.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

COLS, ROWS = 80, 24
READ = 64 * 1024
QUIET_SECONDS = 0.5
READY = "ready"


def keys(count: int) -> Iterator[str]:
    """Letters, with the end of a line after each 40: a terminal that is typed into, not a line that never ends."""
    for number in range(count):
        yield "\r" if number % 41 == 40 else chr(ord("a") + number % 26)


def flood(command: str) -> dict[str, float]:
    """From the first byte to the last."""
    process, master = _start(command)
    select.select([master], [], [])
    started, size = time.perf_counter(), 0
    try:
        while data := os.read(master, READ):
            size += len(data)
    except OSError:  # the other end is closed
        pass
    seconds = time.perf_counter() - started
    process.wait()
    os.close(master)
    return {"bytes": size, "seconds": seconds}


def echo(count: int, command: str) -> dict[str, list[float]]:
    process, master = _start(command)
    said = b""
    while READY.encode() not in said:
        said += os.read(master, READ)
    while select.select([master], [], [], QUIET_SECONDS)[0]:
        os.read(master, READ)
    taken = []
    for key in keys(count):
        started = time.perf_counter()
        os.write(master, key.encode())
        if key == "\r":
            while select.select([master], [], [], 0.05)[0]:
                os.read(master, READ)
            continue
        while key.encode() not in os.read(master, READ):
            pass
        taken.append((time.perf_counter() - started) * 1e3)
    os.close(master)
    process.wait()
    return {"ms": taken}


def _start(command: str) -> tuple[subprocess.Popen[bytes], int]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLS, 0, 0))
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), env=os.environ | {"TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(slave)
    return process, master


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    print(json.dumps(flood(*arguments) if kind == "flood" else echo(int(arguments[0]), arguments[1])))
