"""One file for each figure; its function measures and returns rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from deploy.bench.figures import connect, database, deltas, memory, ping, stopped
from deploy.bench.lab import Lab
from deploy.bench.report import Row

FIGURES: dict[str, Callable[[Lab], Awaitable[list[Row]]]] = {
    "ping": ping.measure,
    "connect": connect.measure,
    "latency": deltas.measure_latency,
    "throughput": deltas.measure_throughput,
    "memory": memory.measure,
    "stopped": stopped.measure,
    "database": database.measure,
}
