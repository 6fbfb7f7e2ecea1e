"""An answer on its way: how much later a delta arrives through the relay, and how many pass in a second."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from deploy.bench.dashboard import direct_dashboard
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile
from deploy.bench.processes import Server, pin
from deploy.bench.report import Aim, Row, at_least, at_most, compared
from deploy.bench.streams import Flow, check_route, direct, make_sessions, relayed

PACED = "bench:150:20"  # 150 deltas, one each 20 ms
FLOODS = {1: "bench:20000:0", 50: "bench:1500:0"}
ADDED_P50_MS, ADDED_P99_MS = 0.6, 3.0
DELTAS_PER_SECOND = 12_000

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Way:
    """How the relay has turns run, and how a client reads the same without the relay."""

    route: str
    direct: Callable[[Server, list[str], str], Awaitable[Flow]]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    flow: Flow
    relay_us: float  # processor time of the relay for each delta: noise hardly touches it
    others: float


async def measure_latency(lab: Lab, way: Way) -> list[Row]:
    rows = []
    async with lab.relay_and_agent(50, dashboard=way is DASHBOARD) as (relay, agent, tokens):
        for count in (1, 50):
            runs = await _both(lab, way, relay, agent, tokens, count, PACED)
            for share, bound in ((0.5, at_most(ADDED_P50_MS)), (0.99, at_most(ADDED_P99_MS))):
                rows.append(_added(way, count, share, bound, runs))
    return rows


async def measure_throughput(lab: Lab, way: Way) -> list[Row]:
    rows = []
    async with lab.relay_and_agent(50, dashboard=way is DASHBOARD) as (relay, agent, tokens):
        for count, message in FLOODS.items():
            runs = await _both(lab, way, relay, agent, tokens, count, message)
            ours, straight = ([run.flow.per_second for run in runs[side]] for side in ("ours", "direct"))
            cost = statistics.median(run.relay_us for run in runs["ours"])
            rows.append(
                compared(
                    f"deltas through {_streams(count)}{way.label}", "1/s", ours, straight, "direct",
                    aim=at_least(DELTAS_PER_SECOND), others=_others(runs),
                    note=f"processor {cost:.0f} µs each; {_whole(runs['ours'], count, message)}",
                )
            )  # fmt: skip
    return rows


async def _both(
    lab: Lab, way: Way, relay: Server, agent: Server, tokens: list[str], count: int, message: str
) -> dict[str, list[Run]]:
    """The stand-in keeps off the core of what it is measured with: the relay, or else the client."""

    def run(core: int, flow: Callable[[list[str]], Awaitable[Flow]]) -> Callable[[], Awaitable[Run]]:
        async def once() -> Run:
            pin(core, agent.pid)
            sessions = [f"bench-{next(_numbers)}" for _ in range(count)]
            await make_sessions(agent, sessions)
            with Meter([relay.pid]) as ours, Meter([relay.pid, agent.pid]) as meter:
                found = await flow(sessions)
            cost = ours.usage.servers * ours.seconds * 1e4 / max(1, len(found.all_ms))
            return Run(found, cost, meter.usage.others)

        return once

    async def through(sessions: list[str]) -> Flow:
        flow = await relayed(relay, tokens, sessions, message)
        check_route(relay, sessions, way.route)
        return flow

    return await lab.in_turn(
        direct=run(0, lambda sessions: way.direct(agent, sessions, message)),
        ours=run(1, through),
    )


def _added(way: Way, count: int, share: float, aim: Aim, runs: dict[str, list[Run]]) -> Row:
    ours, straight = ([percentile(run.flow.steady_ms, share) for run in runs[side]] for side in ("ours", "direct"))
    added = [a - b for a, b in zip(ours, straight, strict=True)]
    return Row(
        f"delta added by the relay, p{share * 100:.0f}, {_streams(count)}{way.label}", "ms", statistics.median(added),
        aim,
        note=f"{statistics.median(ours):.2f} through it, {statistics.median(straight):.2f} direct; with all the starts "
        f"{statistics.median(percentile(run.flow.all_ms, share) for run in runs['ours']):.2f}; "
        + _whole(runs["ours"], count, PACED),
        others=_others(runs), runs={"ours": ours, "direct": straight},
    )  # fmt: skip


def _whole(runs: Sequence[Run], count: int, message: str) -> str:
    """Whether every delta arrived: one that a snapshot stood in for did not."""
    asked = count * int(message.split(":")[1]) * len(runs)
    missed, snapshots = asked - sum(len(run.flow.all_ms) for run in runs), sum(run.flow.snapshots for run in runs)
    return "every delta arrived" if not missed and not snapshots else f"{missed} of {asked} in {snapshots} snapshots"


def _others(runs: dict[str, list[Run]]) -> float:
    return max(run.others for side in runs.values() for run in side)


def _streams(count: int) -> str:
    return f"{count} stream{'s' if count > 1 else ''}"


SESSION_STREAM = Way("session_stream", direct)
DASHBOARD = Way("dashboard", direct_dashboard, ", dashboard")

latency = partial(measure_latency, way=SESSION_STREAM)
throughput = partial(measure_throughput, way=SESSION_STREAM)
dashboard_latency = partial(measure_latency, way=DASHBOARD)
dashboard_throughput = partial(measure_throughput, way=DASHBOARD)
