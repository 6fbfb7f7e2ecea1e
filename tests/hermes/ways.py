"""The ways a relay may reach the lab: each chooses another upstream for its turns."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text

from tests.hermes.hermes_lab import APPROVAL_S, Lab
from tests.hermes.line import laid
from tests.hermes.narrow import RUNS, narrowed
from tests.relay import RunningRelay, running, settings_for

WAYS = ("dashboard", "gated", "session_stream", "runs", "completions")
DASHBOARDS = ("dashboard", "gated")
CALLERS = map("10.0.0.{}".format, itertools.count(1))  # a relay logs in once, a run of the tests too often
ASKING = (*DASHBOARDS, "runs")  # where Hermes asks for approvals


def environ(way: str, lab: Lab, *, api: str | None = None, dashboard: str | None = None) -> dict[str, str]:
    """Settings of a relay. The URLs given are used instead of the lab's own."""
    values = {"HERMES_API_URL": api or lab.url, "HERMES_API_KEY": lab.key, "HERMES_DASHBOARD_URL": ""}
    if way == "dashboard":
        values |= {"HERMES_DASHBOARD_URL": dashboard or lab.dashboard, "HERMES_DASHBOARD_TOKEN": lab.token}
    elif way == "gated":
        values |= {
            "HERMES_DASHBOARD_URL": dashboard or lab.gated, "HERMES_DASHBOARD_USERNAME": lab.username,
            "HERMES_DASHBOARD_PASSWORD": lab.password,
        }  # fmt: skip
    elif way == "runs":
        values |= {"HERMES_ASK_APPROVALS": "true", "HERMES_APPROVAL_TIMEOUT": str(APPROVAL_S)}
    return values


@asynccontextmanager
async def running_over(way: str, lab: Lab, data_dir: Path) -> AsyncIterator[RunningRelay]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(narrowed(lab.url, hide=RUNS)) if way == "completions" else None
        gated = (await stack.enter_async_context(laid(lab.gated, next(CALLERS)))).url if way == "gated" else None
        values = environ(way, lab, api=api, dashboard=gated)
        relay = await stack.enter_async_context(running(settings_for(data_dir, **values)))
        await up(way, relay)
        yield relay


async def up(way: str, relay: RunningRelay) -> None:
    """Returns when the relay has found what its way needs."""
    await state_is("up", "dashboard" if way in DASHBOARDS else "api", relay)


async def state_is(state: str, upstream: str, relay: RunningRelay) -> None:
    """Looks again until it is: what was lost just now is noticed meanwhile."""
    async with asyncio.timeout(30):
        await relay.relay.hermes.probe()
        while relay.relay.upstream()[upstream]["state"] != state:
            await relay.relay.hermes.probe()


async def route(relay: RunningRelay, turn_id: str) -> str:
    """Which upstream a turn was bound to."""
    work = text("SELECT lease FROM turns WHERE turn_id = :turn")
    row = await relay.relay.db.read(lambda tx: tx.one(work, {"turn": turn_id}))
    assert row is not None
    lease: dict[str, Any] = json.loads(row[0])
    return str(lease["route"])


def kind(way: str) -> str:
    """The upstream of a way."""
    return "dashboard" if way in DASHBOARDS else way
