"""An answer on its way: how much later a delta arrives through the relay, and how many pass in a second."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Awaitable, Callable, Sequence

from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile
from deploy.bench.processes import Server, pin
from deploy.bench.report import Aim, Row, at_least, at_most, compared
from deploy.bench.streams import Flow, direct, make_sessions, relayed

PACED = "bench:150:20"  # 150 deltas, one each 20 ms
FLOODS = {1: "bench:20000:0", 50: "bench:1500:0"}
ADDED_P50_MS, ADDED_P99_MS = 0.6, 3.0
DELTAS_PER_SECOND = 12_000

_numbers = itertools.count(1)


async def measure_latency(lab: Lab) -> list[Row]:
    rows = []
    async with lab.relay_and_agent(50) as (relay, agent, tokens):
        for count in (1, 50):
            flows, others = await _both(lab, relay, agent, tokens, count, PACED)
            for share, bound in ((0.5, at_most(ADDED_P50_MS)), (0.99, at_most(ADDED_P99_MS))):
                rows.append(_added(count, share, bound, flows, others))
    return rows


async def measure_throughput(lab: Lab) -> list[Row]:
    rows = []
    async with lab.relay_and_agent(50) as (relay, agent, tokens):
        for count, message in FLOODS.items():
            flows, others = await _both(lab, relay, agent, tokens, count, message)
            ours, straight = ([flow.per_second for flow in flows[side]] for side in ("ours", "direct"))
            rows.append(
                compared(
                    f"deltas through {_streams(count)}", "1/s", ours, straight, "direct",
                    aim=at_least(DELTAS_PER_SECOND), others=others, note=_whole(flows["ours"], count, message),
                )
            )  # fmt: skip
    return rows


async def _both(
    lab: Lab, relay: Server, agent: Server, tokens: list[str], count: int, message: str
) -> tuple[dict[str, list[Flow]], float]:
    """The stand-in keeps off the core of what it is measured with: the relay, or else the client."""
    others = []

    def run(core: int, flow: Callable[[list[str]], Awaitable[Flow]]) -> Callable[[], Awaitable[Flow]]:
        async def once() -> Flow:
            pin(core, agent.pid)
            sessions = [f"bench-{next(_numbers)}" for _ in range(count)]
            await make_sessions(agent, sessions)
            with Meter([relay.pid, agent.pid]) as meter:
                found = await flow(sessions)
            others.append(meter.usage.others)
            return found

        return once

    flows = await lab.in_turn(
        direct=run(0, lambda sessions: direct(agent, sessions, message)),
        ours=run(1, lambda sessions: relayed(relay, tokens, sessions, message)),
    )
    return flows, max(others)


def _added(count: int, share: float, aim: Aim, flows: dict[str, list[Flow]], others: float) -> Row:
    ours, straight = ([percentile(flow.steady_ms, share) for flow in flows[side]] for side in ("ours", "direct"))
    added = [a - b for a, b in zip(ours, straight, strict=True)]
    return Row(
        f"delta added by the relay, p{share * 100:.0f}, {_streams(count)}", "ms", statistics.median(added), aim,
        note=f"{statistics.median(ours):.2f} through it, {statistics.median(straight):.2f} direct; with all the starts "
        f"{statistics.median(percentile(flow.all_ms, share) for flow in flows['ours']):.2f}; "
        + _whole(flows["ours"], count, PACED),
        others=others, runs={"ours": ours, "direct": straight},
    )  # fmt: skip


def _whole(flows: Sequence[Flow], count: int, message: str) -> str:
    """Whether every delta arrived: one that a snapshot stood in for did not."""
    asked = count * int(message.split(":")[1]) * len(flows)
    missed, snapshots = asked - sum(len(flow.all_ms) for flow in flows), sum(flow.snapshots for flow in flows)
    return "every delta arrived" if not missed and not snapshots else f"{missed} of {asked} in {snapshots} snapshots"


def _streams(count: int) -> str:
    return f"{count} stream{'s' if count > 1 else ''}"
