"""One file for each figure; its function measures and returns rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from deploy.bench.figures import (
    appends,
    bridge,
    connect,
    deltas,
    gateway,
    media,
    memory,
    pairing,
    passing,
    ping,
    posts,
    returning,
    stopped,
    terminal,
    watchers,
)
from deploy.bench.lab import Lab
from deploy.bench.report import Row

FIGURES: dict[str, Callable[[Lab], Awaitable[list[Row]]]] = {
    "ping": ping.measure,
    "connect": connect.measure,
    "latency": deltas.latency,
    "dashboard-latency": deltas.dashboard_latency,
    "throughput": deltas.throughput,
    "dashboard-throughput": deltas.dashboard_throughput,
    "watchers": watchers.measure,
    "memory": memory.measure,
    "stopped": stopped.measure,
    "appends": appends.measure,
    "posts": posts.measure,
    "gateway": gateway.measure,
    "writing": gateway.measure_writing,
    "backlog": returning.measure_backlog,
    "history": returning.measure_history,
    "pairing": pairing.measure,
    "bridge": bridge.measure,
    "media": media.measure,
    "passing": passing.measure,
    "terminal-echo": terminal.measure_echo,
    "terminal-flood": terminal.measure_flood,
    "terminal-stopped": terminal.measure_stopped,
}
