"""Runs and completions on the served stand-in: whole turns, one after the other, in one conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from app.demo.agent import Agent
from app.demo.stand_in import StandIn, serve_stand_in
from app.hermes.hermes import Hermes
from app.hermes.lease import Lease
from app.hermes.upstream import Followed, Order, Upstream
from app.settings import HermesSettings
from app.tasks import Supervisor
from tests.hermes_client.routed import Heard

KEY = "stand-in-key-0123456789"
BOTH = pytest.mark.parametrize("kind", ["runs", "completions"])


@pytest.fixture
async def stand_in() -> AsyncIterator[StandIn]:
    async with serve_stand_in(KEY, agent=Agent(delay_s=0)) as served:
        yield served


@pytest.fixture
async def hermes(stand_in: StandIn) -> AsyncIterator[Hermes]:
    settings = HermesSettings(hermes_api_url=stand_in.url, hermes_api_key=KEY)  # type: ignore[arg-type]
    async with Supervisor() as tasks, Hermes(settings, tasks) as hermes:
        yield hermes


class Turn:
    """One that runs."""

    def __init__(self, upstream: Upstream, lease: Lease, order: Order, group: asyncio.TaskGroup) -> None:
        self.upstream, self.order, self.heard = upstream, order, Heard()
        self._lease = lease
        self.running = group.create_task(upstream.run(lease, order, self.heard))

    @property
    def lease(self) -> Lease:
        return replace(self._lease, run_id=self.heard.runs[-1])


async def begun(hermes: Hermes, kind: str, session_id: str, message: str, group: asyncio.TaskGroup) -> Turn:
    upstream, order = hermes.upstream(kind), Order(message)
    return Turn(upstream, await hermes.lease(upstream, session_id, order), order, group)


async def turn(hermes: Hermes, kind: str, session_id: str, message: str) -> Heard:
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = await begun(hermes, kind, session_id, message, group)
    return running.heard


async def new(hermes: Hermes, kind: str) -> str:
    return str((await hermes.upstream(kind).create(Order("hi")))["id"])


async def rows(hermes: Hermes, session_id: str) -> list[tuple[str, Any]]:
    return [(row["role"], row["content"]) for row in await hermes.api.messages(session_id) if row["role"] != "tool"]


@BOTH
async def test_turns_of_one_conversation_are_stored_in_it(hermes: Hermes, kind: str) -> None:
    session = await new(hermes, kind)
    for word in ("one", "two"):
        heard = await turn(hermes, kind, session, f"SAY:{word}")
        assert heard.text() == word
        assert heard.names()[-2:] == ["run.completed", "done"]
    said = [("user", "SAY:one"), ("assistant", "one"), ("user", "SAY:two"), ("assistant", "two")]
    assert await rows(hermes, session) == said


@BOTH
async def test_a_tool(hermes: Hermes, kind: str) -> None:
    heard = await turn(hermes, kind, await new(hermes, kind), "TOOL:terminal:echo hi")
    tools = [(name, body["tool_name"]) for name, body in heard.all if body and "tool_name" in body]
    assert tools == [("tool.started", "terminal"), ("tool.completed", "terminal")]


@BOTH
async def test_stopping(hermes: Hermes, stand_in: StandIn, kind: str) -> None:
    stand_in.agent.gate.clear()
    session = await new(hermes, kind)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = await begun(hermes, kind, session, "gated WORDS:9", group)
        await running.heard.until("assistant.delta")
        assert await running.upstream.stop(running.lease)
        stand_in.agent.gate.set()
    assert running.heard.names()[-2:] == ["run.cancelled", "done"]


@pytest.mark.parametrize(("choice", "ended"), [("once", "tool.completed"), ("deny", "tool.failed")])
async def test_an_approval_is_asked_and_answered(hermes: Hermes, choice: str, ended: str) -> None:
    session = await new(hermes, "runs")
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = await begun(hermes, "runs", session, "APPROVE:rm a", group)
        await running.heard.until("approval.request")
        assert await running.upstream.follow(running.lease, running.order, running.heard) is Followed.RUNNING
        assert await running.upstream.decide(running.lease, choice) == 1
        assert await running.upstream.decide(running.lease, choice) == 0
    (asked,) = [body for name, body in running.heard.all if name == "approval.request"]
    assert asked is not None
    assert asked["command"] == "rm a"
    assert [n for n in running.heard.names() if n.startswith(("tool", "approval"))] == [
        "tool.started", "approval.request", "approval.responded", ended,
    ]  # fmt: skip
    heard = Heard()
    assert await running.upstream.follow(running.lease, running.order, heard) is Followed.ENDED
    assert heard.names() == ["assistant.completed", "run.completed", "done"]
