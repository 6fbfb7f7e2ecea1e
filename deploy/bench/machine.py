"""What the machine says: processor time, memory, and how busy everyone else was. Linux only: it reads /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

TICKS = os.sysconf("SC_CLK_TCK")
ESTABLISHED = "01"  # the state's code in /proc/net/tcp


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time in percent of one core: our servers, this process, and everybody else."""

    servers: float
    client: float
    others: float


class Meter:
    """`with Meter(pids) as meter: …` and then `meter.usage`, `meter.seconds`."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.seconds = 0.0
        self.usage = Usage(0.0, 0.0, 0.0)

    def __enter__(self) -> Self:
        self._at, self._before = time.perf_counter(), self._read()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.seconds = time.perf_counter() - self._at
        servers, client, all_ = (
            100 * (after - before) / self.seconds for before, after in zip(self._before, self._read(), strict=True)
        )
        self.usage = Usage(servers, client, max(0.0, all_ - servers - client))

    def _read(self) -> tuple[float, float, float]:
        own = os.times()
        return sum(map(_processor_seconds, self._pids)), own.user + own.system, _busy_seconds()


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _busy_seconds() -> float:
    """Without interrupts: the loopback network is one, and most of it is ours."""
    user, nice, system, _idle, _wait, _irq, _soft, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + steal) / TICKS


def resident_kib(pid: int) -> int:
    return _status(pid, "VmRSS")


def peak_kib(pid: int) -> int:
    """The most that was ever resident."""
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)


def first_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def server_holds(server_port: int, client_port: int) -> bool:
    """Whether the server's end of this loopback connection is still open. The kernel knows before any client does."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state = line.split()[:4]
        if (int(local[-4:], 16), int(remote[-4:], 16)) == (server_port, client_port):
            return state == ESTABLISHED
    return False


def file_system(path: Path) -> str:
    """Its type: a figure of synced writes means nothing on tmpfs."""
    mounts = (line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines())
    above = [(point, kind) for point, kind in mounts if path.resolve().is_relative_to(point)]
    return max(above, key=lambda mount: len(mount[0]))[1]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
