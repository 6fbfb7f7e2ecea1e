"""What a restarted relay makes of the turns that it was in the middle of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from app.clock import ManualClock
from app.db import Tx
from app.demo.agent import Agent
from app.demo.stand_in import StandIn, serve_stand_in
from app.hermes.upstream import Order
from app.turns import store
from app.turns.state import TurnState
from tests.turns.rooms import KEY, Rooms, open_devices, open_rooms


@pytest.fixture
async def agent() -> Agent:
    agent = Agent(delay_s=0)
    agent.gate.clear()
    return agent


@pytest.fixture
async def hermes(agent: Agent) -> AsyncIterator[StandIn]:
    async with serve_stand_in(KEY, agent=agent) as served:
        yield served


class House:
    """One relay after another on the same data. `restart` leaves the turns of the one before as they are stored."""

    def __init__(self, path: Path, hermes: StandIn, clock: ManualClock) -> None:
        self._path, self._hermes, self._clock = path, hermes, clock
        self._open = AsyncExitStack()

    async def start(self) -> Rooms:
        rooms = await self._open.enter_async_context(open_rooms(self._path, self._hermes.url, clock=self._clock))
        await rooms.approvals.recover()
        await rooms.turns.recover()
        return rooms

    async def stop(self) -> None:
        await self._open.aclose()

    async def restart(self) -> Rooms:
        await self.stop()
        return await self.start()


@pytest.fixture
async def house(tmp_path: Path, hermes: StandIn) -> AsyncIterator[House]:
    house = House(tmp_path, hermes, ManualClock())
    async with asyncio.timeout(20):
        yield house
    await house.stop()


async def begin(house: House, agent: Agent, message: str) -> tuple[Rooms, str, str]:
    """A relay with a turn that Hermes works on: (rooms, session, turn)."""
    rooms = await house.start()
    await open_devices(rooms.db)
    phone, session = rooms.phone(), await rooms.session()
    turn = await rooms.send(phone, message, session_id=session)
    await agent.gated()
    await phone.event("assistant.delta")
    await rooms.db.write(lambda tx: None)  # what was queued before this is stored
    assert await rooms.state_of(turn["turn_id"]) == "running"
    return rooms, session, str(turn["turn_id"])


async def test_a_turn_that_ran_is_followed_to_its_end(house: House, agent: Agent) -> None:
    rooms, session, running = await begin(house, agent, "tools WORDS:9 gated")
    waiting = await rooms.send(rooms.phone(), "SAY:later", session_id=session)
    rooms = await house.restart()
    phone = rooms.phone()
    snapshot = phone.frames[0]["payload"]
    assert (snapshot["turn_id"], snapshot["state"]["gap"]) == (running, True)
    agent.gate.set()
    end = await rooms.ended(running)
    assert (end["finish"], end["text"]) == ("completed", "w1 w2 w3 w4 w5 w6 w7 w8 w9")
    assert (await rooms.ended(waiting["turn_id"]))["text"] == "later"
    assert [seq for seq, _, _ in await rooms.kept()] == [1, 2]
    assert [message for _, message in agent.turns_started] == ["tools WORDS:9 gated", "SAY:later"]


def test_a_checkpoint_does_not_grow_with_what_tools_give() -> None:
    state = TurnState("s", 5.0)
    state.text.add("let me see")
    for n in range(100):
        body = {"tool_name": "read", "tool_id": f"t{n}", "preview": "a file", "args": "x" * 200_000}
        state.tools.started(body, 0.0)
        state.tools.ended({"tool_id": f"t{n}", "result": "x" * 200_000}, 1.0, failed=False)
    stored = orjson.dumps(state.checkpoint())
    assert len(stored) < 20_000
    restored = TurnState("s", 9.0)
    restored.restore(orjson.loads(stored))
    assert (str(restored.text), restored.started_at, len(restored.tools.all)) == ("let me see", 5.0, 100)
    assert restored.tools.all[7].as_json() == {
        "tool_id": "t7", "tool_name": "read", "preview": "a file", "duration_s": 1.0, "state": "completed",
    }  # fmt: skip


async def test_restarted_again_and_again(house: House, agent: Agent) -> None:
    rooms, _, running = await begin(house, agent, "WORDS:9 gated")
    for _ in range(3):
        rooms = await house.restart()
        await rooms.pauses.sleeping.wait()
    agent.gate.set()
    assert (await rooms.ended(running))["finish"] == "completed"
    assert len(await rooms.kept()) == len(agent.turns_started) == 1


async def test_one_without_news_is_uncertain(house: House, agent: Agent) -> None:
    _, _, running = await begin(house, agent, "WORDS:9 gated")
    rooms = await house.restart()
    end = await rooms.ended(running)
    assert (end["finish"], end["error"]["code"], end["text"]) == ("uncertain", "turn_uncertain", "w1")
    assert sum(rooms.pauses.slept) >= 30 * 60


async def submitting(house: House, message: str) -> tuple[str, str]:
    """A turn of which the relay was killed just before, or just after, its first byte left."""
    rooms = await house.start()
    await open_devices(rooms.db)
    session, turn = await rooms.session(), "turn-1"
    upstream = await rooms.hermes.choose(Order(message))
    lease = await rooms.hermes.lease(upstream, session, Order(message))

    def work(tx: Tx) -> None:
        store.insert(tx, turn, "phone", session, {"message": message}, rooms.clock.now())
        assert store.submitting(tx, turn, lease, rooms.clock.now())

    await rooms.db.write(work)
    return session, turn


async def test_what_never_left_is_uncertain_and_not_sent(house: House, agent: Agent) -> None:
    _, turn = await submitting(house, "SAY:hi")
    rooms = await house.restart()
    assert (await rooms.ended(turn))["finish"] == "uncertain"
    assert 120 <= sum(rooms.pauses.slept) < 150
    assert agent.turns_started == []


async def test_what_did_leave_has_its_end(house: House, agent: Agent) -> None:
    session, turn = await submitting(house, "SAY:hi")
    agent.history.add(session, {"role": "user", "content": "SAY:hi"})
    agent.history.add(session, {"role": "assistant", "content": "hi", "finish_reason": "stop"})
    rooms = await house.restart()
    end = await rooms.ended(turn)
    assert (end["finish"], end["text"]) == ("completed", "hi")
    assert agent.turns_started == []


@pytest.mark.parametrize(("age", "finish"), [(599, "completed"), (601, "failed")])
async def test_what_was_accepted_is_sent_for_ten_minutes(tmp_path: Path, age: float, finish: str) -> None:
    clock, agent = ManualClock(), Agent(delay_s=0)
    agent.gate.clear()
    async with serve_stand_in(KEY, agent=agent) as hermes:
        async with open_rooms(tmp_path, hermes.url, clock=clock) as rooms:
            await open_devices(rooms.db)
            phone, session = rooms.phone(), await rooms.session()
            await rooms.send(phone, "gated", session_id=session)
            await agent.gated()
            waiting = await rooms.send(phone, "SAY:late", session_id=session)
        clock.advance(age)
        async with open_rooms(tmp_path, hermes.url, clock=clock) as rooms:
            await rooms.turns.recover()
            end = await rooms.ended(waiting["turn_id"])
    assert end["finish"] == finish
    assert end.get("error", {}).get("code") == (None if finish == "completed" else "turn_expired")
    assert len(agent.turns_started) == (2 if finish == "completed" else 1)
