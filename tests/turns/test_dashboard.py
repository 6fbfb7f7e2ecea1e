"""Turns over the dashboard: what they ask, how they are stopped, and what a cut or a restart makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.approvals.errors import ApprovalClosed, ApprovalWaiting
from app.clock import ManualClock
from app.demo.agent import Agent
from app.demo.stand_in import StandIn, serve_stand_in
from app.errors import IdReused
from app.hermes.errors import UpstreamUnreachable
from app.hermes.lease import Lease
from app.turns import runner, store
from tests.demo.board import board as open_board
from tests.turns.rooms import KEY, Phone, Rooms, open_devices, open_rooms


@pytest.fixture
async def stand_in() -> AsyncIterator[StandIn]:
    async with serve_stand_in(KEY, agent=Agent(delay_s=0)) as served:
        yield served


class House:
    """One relay after another on the same data, in front of the same Hermes."""

    def __init__(self, path: Path, stand_in: StandIn) -> None:
        self._path, self.stand_in, self._clock = path, stand_in, ManualClock()
        self._open = AsyncExitStack()

    async def start(self) -> Rooms:
        opened = open_rooms(self._path, self.stand_in.url, clock=self._clock, board=self.stand_in)
        rooms = await self._open.enter_async_context(opened)
        await rooms.approvals.recover()
        await rooms.turns.recover()
        return rooms

    async def restart(self) -> Rooms:
        await self.stop()
        return await self.start()

    async def stop(self) -> None:
        await self._open.aclose()


@pytest.fixture
async def house(tmp_path: Path, stand_in: StandIn) -> AsyncIterator[House]:
    house = House(tmp_path, stand_in)
    async with asyncio.timeout(20):
        yield house
    await house.stop()


@pytest.fixture
async def rooms(house: House) -> Rooms:
    rooms = await house.start()
    await open_devices(rooms.db)
    return rooms


async def kept(rooms: Rooms, type_: str, count: int = 1) -> list[dict[str, Any]]:
    """Payloads of the kept frames of a type, once there are so many."""
    async with asyncio.timeout(10):
        while True:
            rooms.bell.rung.clear()
            found = [payload for _, type, payload in await rooms.kept() if type == type_]
            if len(found) >= count:
                return found
            await rooms.bell.rung.wait()


# what it brings


async def test_thoughts_and_tools_as_they_happen(rooms: Rooms) -> None:
    phone = rooms.phone()
    turn = await rooms.send(phone, "THINK:hm\nPRE:let me see\nTOOL:terminal:echo hi")
    end = await rooms.ended(turn["turn_id"])
    assert (end["finish"], end["reasoning"]) == ("completed", "hmhm")
    assert end["text"].startswith("let me see\n\n")
    names = phone.events()
    assert names.index("reasoning.delta") < names.index("assistant.delta") < names.index("tool.started")
    assert names.count("tool.completed") == 1
    assert names[-2:] == ["run.completed", "done"]


async def test_pictures_go_the_other_way_and_the_next_turn_knows_of_them(rooms: Rooms, stand_in: StandIn) -> None:
    phone, session = rooms.phone(), await rooms.session()
    parts = [
        {"type": "text", "text": "SAY:a cat"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,x"}},
    ]
    routes = []
    for message in ("SAY:one", parts, "SAY:two"):
        turn = await rooms.send(phone, message, session_id=session)
        assert (await rooms.ended(turn["turn_id"]))["finish"] == "completed"
        routes.append(await route_of(rooms, turn["turn_id"]))
    assert routes == ["dashboard", "session_stream", "dashboard"]
    assert [row["content"] for row in stand_in.agent.history.get(session).rows if row["role"] == "assistant"] == [
        "one", "a cat", "two",
    ]  # fmt: skip


async def route_of(rooms: Rooms, turn_id: str) -> str:
    return str(orjson.loads((await rooms.stored(turn_id))[3])["route"])


async def test_a_dashboard_that_is_lost_before_the_submit_costs_no_turn(
    rooms: Rooms, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = rooms.hermes.upstream("dashboard")

    async def lost(order: Any) -> Any:
        stand_in.dashboard.hang_up()
        monkeypatch.setattr(type(dashboard), "ready", False)
        raise UpstreamUnreachable()

    monkeypatch.setattr(dashboard, "create", lost)
    turn = await rooms.send(rooms.phone(), "SAY:all the same")
    end = await rooms.ended(turn["turn_id"])
    assert (end["finish"], end["text"]) == ("completed", "all the same")
    assert await route_of(rooms, turn["turn_id"]) == "session_stream"


# approvals and questions


async def test_an_approval_is_asked_allowed_and_acted_on(rooms: Rooms) -> None:
    phone = rooms.phone()
    turn = await rooms.send(phone, "APPROVE:rm -rf /tmp/x")
    (asked,) = await kept(rooms, "approval.request")
    assert (asked["summary"], asked["tool"], asked["state"]) == ("rm -rf /tmp/x", "terminal", "open")
    assert asked["turn_id"] == turn["turn_id"]
    assert asked["expires_at"] - asked["asked_at"] == 57
    assert [ask["approval_id"] for ask in rooms.approvals.of_turn(turn["turn_id"])] == [asked["approval_id"]]
    answer = await rooms.approvals.respond("phone", asked["approval_id"], "once", "f1")
    assert (answer["outcome"], answer["choice"], answer["by"]) == ("allowed", "once", "phone")
    end = await rooms.ended(turn["turn_id"])
    assert end["finish"] == "completed"
    assert [payload["outcome"] for payload in await kept(rooms, "approval.resolved")] == ["allowed"]
    assert rooms.approvals.open() == ([], [])


async def test_of_two_only_the_oldest_can_be_answered(rooms: Rooms, stand_in: StandIn) -> None:
    turn = await rooms.send(rooms.phone(), "APPROVE2:rm one|rm two")
    first, second = await kept(rooms, "approval.request", 2)
    assert (first["state"], second["state"]) == ("open", "waiting")
    with pytest.raises(ApprovalWaiting):
        await rooms.approvals.respond("phone", second["approval_id"], "once", None)
    await rooms.approvals.respond("phone", first["approval_id"], "deny", None)
    reopened = (await kept(rooms, "approval.request", 3))[2]
    assert (reopened["approval_id"], reopened["state"]) == (second["approval_id"], "open")
    await rooms.approvals.respond("tablet", second["approval_id"], "once", None)
    assert (await rooms.ended(turn["turn_id"]))["finish"] == "completed"
    outcomes = [payload["outcome"] for payload in await kept(rooms, "approval.resolved", 2)]
    assert outcomes == ["denied", "allowed"]


async def test_answered_on_the_dashboard_itself(rooms: Rooms, stand_in: StandIn) -> None:
    turn = await rooms.send(rooms.phone(), "APPROVE:rm one")
    (asked,) = await kept(rooms, "approval.request")
    (live,) = stand_in.dashboard.live()
    async with open_board(stand_in) as other:
        other.session_id = live.id
        assert await other.call("approval.respond", choice="once") == {"resolved": 1}
        assert (await rooms.ended(turn["turn_id"]))["finish"] == "completed"
    assert [payload["outcome"] for payload in await kept(rooms, "approval.resolved")] == ["resolved_elsewhere"]
    with pytest.raises(ApprovalClosed):
        await rooms.approvals.respond("phone", asked["approval_id"], "once", None)


async def test_what_another_client_answered_unheard_does_not_let_the_next_one_through(
    rooms: Rooms, stand_in: StandIn
) -> None:
    """Who opens the conversation takes its events: the phone still shows the first, while the second waits there."""
    turn = await rooms.send(rooms.phone(), "APPROVE:rm one\nAPPROVE:rm two")
    (first,) = await kept(rooms, "approval.request")
    (live,) = stand_in.dashboard.live()
    async with open_board(stand_in) as other:
        await other.resume(live.stored_id)
        await other.call("approval.respond", choice="deny")
        assert (await other.until("approval.request"))["command"] == "rm two"
        with pytest.raises(ApprovalClosed):
            await rooms.approvals.respond("phone", first["approval_id"], "once", None)
        assert [payload["outcome"] for payload in await kept(rooms, "approval.resolved")] == ["resolved_elsewhere"]
        assert await other.call("approval.respond", choice="deny") == {"resolved": 1}
        rooms.naps.gate.set()
        assert (await rooms.ended(turn["turn_id"]))["finish"] == "completed"


@pytest.mark.parametrize("answer", ["red", "something else"])
async def test_a_question(rooms: Rooms, answer: str) -> None:
    turn = await rooms.send(rooms.phone(), "ASK:Which?|red|blue")
    (asked,) = await kept(rooms, "question.ask")
    assert (asked["text"], asked["choices"], asked["turn_id"]) == ("Which?", ["red", "blue"], turn["turn_id"])
    closed = await rooms.approvals.answer("phone", asked["question_id"], answer, None)
    assert (closed["outcome"], closed["answer"]) == ("answered", answer)
    assert answer in (await rooms.ended(turn["turn_id"]))["text"]


# stopping


async def test_a_turn_that_runs_is_stopped(rooms: Rooms, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    phone = rooms.phone()
    turn = await rooms.send(phone, "WORDS:9 gated")
    await phone.event("assistant.delta")
    answers = [await rooms.turns.stop(phone, turn["turn_id"], key) for key in ("f1", "f1", "f2")]
    assert [answer["stopped"] for answer in answers[:2]] == [True, True]
    end = await rooms.ended(turn["turn_id"])
    assert (end["finish"], end["text"]) == ("stopped", "w1")
    assert phone.events()[-2:] == ["run.completed", "done"]


async def test_a_turn_that_waits_for_an_approval_is_stopped(rooms: Rooms) -> None:
    phone = rooms.phone()
    turn = await rooms.send(phone, "APPROVE:rm one")
    await kept(rooms, "approval.request")
    assert (await rooms.turns.stop(phone, turn["turn_id"], None))["stopped"]
    assert (await rooms.ended(turn["turn_id"]))["finish"] == "stopped"
    assert [payload["outcome"] for payload in await kept(rooms, "approval.resolved")] == ["resolved_elsewhere"]


async def test_a_copy_of_a_stop_that_has_ended_the_turn_gets_its_answer(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone, told, go = rooms.phone(), asyncio.Event(), asyncio.Event()
    turn = await rooms.send(phone, "APPROVE:rm one")
    await kept(rooms, "approval.request")
    upstream = rooms.hermes.upstream("dashboard")
    interrupt = upstream.stop

    async def stop(lease: Lease) -> bool:
        stopped = await interrupt(lease)
        told.set()
        await go.wait()
        return stopped

    monkeypatch.setattr(upstream, "stop", stop)
    first = asyncio.ensure_future(rooms.turns.stop(phone, turn["turn_id"], "f1"))
    await told.wait()
    await rooms.ended(turn["turn_id"])
    copy = asyncio.ensure_future(rooms.turns.stop(phone, turn["turn_id"], "f1"))
    with pytest.raises(IdReused):
        await rooms.turns.stop(phone, "another", "f1")
    go.set()
    assert await first == await copy == {"turn_id": turn["turn_id"], "stopped": True}


# a cut, a restart


async def test_a_cut_socket_is_taken_up_again(rooms: Rooms, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    phone = rooms.phone()
    turn = await rooms.send(phone, "tools WORDS:9 gated")
    await phone.event("assistant.delta")
    stand_in.dashboard.hang_up()
    await phone.until("turn.snapshot")
    stand_in.agent.gate.set()
    end = await rooms.ended(turn["turn_id"])
    assert end["finish"] == "completed"
    assert end["text"].endswith("w1 w2 w3 w4 w5 w6 w7 w8 w9")
    assert len(stand_in.agent.turns_started) == 1


async def test_an_approval_outlives_the_relay(house: House, rooms: Rooms, stand_in: StandIn) -> None:
    turn = await rooms.send(rooms.phone(), "APPROVE:rm one")
    (asked,) = await kept(rooms, "approval.request")
    rooms = await house.restart()
    assert [ask["approval_id"] for ask in rooms.approvals.open()[0]] == [asked["approval_id"]]
    phone = rooms.phone()
    assert phone.frames[0]["payload"]["state"]["approvals"][0]["approval_id"] == asked["approval_id"]
    assert (await rooms.approvals.respond("phone", asked["approval_id"], "once", None))["outcome"] == "allowed"
    assert (await rooms.ended(turn["turn_id"]))["finish"] == "completed"
    assert len(stand_in.agent.turns_started) == 1


async def test_what_a_turn_asked_that_is_not_gone_on_with_ends_with_the_relay(house: House, rooms: Rooms) -> None:
    """Killed between the end of the turn and that of what it had asked."""
    turn = await rooms.send(rooms.phone(), "APPROVE:rm one")
    (asked,) = await kept(rooms, "approval.request")
    payload = {"turn_id": turn["turn_id"], "session_id": asked["session_id"], "finish": "uncertain"}
    await rooms.db.write(lambda tx: store.end(tx, turn["turn_id"], payload, rooms.clock.now()))
    rooms = await house.restart()
    assert [payload["outcome"] for payload in await kept(rooms, "approval.resolved")] == ["resolved_elsewhere"]
    assert rooms.approvals.open() == ([], [])


async def test_a_dashboard_that_restarts_leaves_its_turn_interrupted(rooms: Rooms, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    phone = rooms.phone()
    turn = await rooms.send(phone, "WORDS:9 gated")
    await phone.event("assistant.delta")
    for live in stand_in.dashboard.live():
        stand_in.dashboard.forget(live)
    stand_in.dashboard.hang_up()
    end = await rooms.ended(turn["turn_id"])
    assert (end["finish"], end["text"]) == ("interrupted", "w1")


async def test_a_dashboard_that_stays_away_has_lost_its_turn(rooms: Rooms, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    phone = rooms.phone()
    turn = await rooms.send(phone, "WORDS:9 gated")
    await phone.event("assistant.delta")
    stand_in.dashboard.token = "another"
    rooms.pauses.gate.clear()
    stand_in.dashboard.hang_up()
    await rooms.pauses.sleeping.wait()
    rooms.pauses.gate.set()
    waiting = await phone.event("run.waiting")
    assert waiting["payload"]["payload"]["code"] == "upstream_unreachable"
    end = await rooms.ended(turn["turn_id"])
    assert (end["finish"], end["text"]) == ("interrupted", "w1")
    assert 120 <= sum(rooms.pauses.slept) < 140


async def test_another_client_takes_the_events_and_the_end_is_found(rooms: Rooms, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    phone = rooms.phone()
    turn = await rooms.send(phone, "WORDS:9 gated")
    await phone.event("assistant.delta")
    (live,) = stand_in.dashboard.live()
    async with open_board(stand_in) as other:
        await other.resume(live.stored_id)
        stand_in.agent.gate.set()
        await other.until("message.complete")
        rooms.naps.gate.set()
        end = await rooms.ended(turn["turn_id"])
        assert live.socket is not None
    assert (end["finish"], end["text"]) == ("completed", "w1 w2 w3 w4 w5 w6 w7 w8 w9")


async def test_a_conversation_that_is_compressed_goes_on_elsewhere(rooms: Rooms) -> None:
    phone, session = rooms.phone(), await rooms.session()
    first = await rooms.send(phone, "SAY:one", session_id=session)
    await rooms.ended(first["turn_id"])
    turn = await rooms.send(phone, "COMPRESS SAY:two", session_id=session)
    later = await rooms.send(phone, "SAY:three", session_id=session)
    moved = await phone.until("chat.session.moved")
    assert moved["payload"]["from"] == session
    end = await rooms.ended(turn["turn_id"])
    assert end["session_id"] == moved["payload"]["to"] != session
    assert (await rooms.ended(later["turn_id"]))["session_id"] == moved["payload"]["to"]


async def test_titles_reach_every_link(rooms: Rooms) -> None:
    phone, tablet = rooms.phone(), rooms.phone("tablet")
    turn = await rooms.send(phone, "SAY:one")
    end = await rooms.ended(turn["turn_id"])
    named = await tablet.until("chat.session")
    assert named["payload"]["session_id"] == end["session_id"]
    assert named["payload"]["title"]


# what Hermes begins by itself


async def begun(rooms: Rooms, stand_in: StandIn, message: str) -> tuple[Phone, str]:
    """A conversation in which Hermes goes on by itself, as it does when what it delegated comes back."""
    phone = rooms.phone()
    await rooms.ended((await rooms.send(phone, "SAY:I have begun"))["turn_id"])
    (live,) = stand_in.dashboard.live()
    assert live.socket is not None
    live.submit(message, live.socket)
    snapshot = await phone.until("turn.snapshot")
    return phone, snapshot["payload"]["turn_id"]


async def test_a_turn_that_hermes_begins_itself_is_shown_and_kept(rooms: Rooms, stand_in: StandIn) -> None:
    phone, turn = await begun(rooms, stand_in, "SAY:and it is done")
    end = await rooms.ended(turn)
    assert (end["finish"], end["text"]) == ("completed", "and it is done")
    assert [frame["payload"]["turn_id"] for frame in phone.frames if frame["type"] == "turn.snapshot"] == [turn]
    assert phone.events()[-2:] == ["run.completed", "done"]
    assert await rooms.state_of(turn) == "ended"


async def test_what_is_sent_meanwhile_waits_for_it(rooms: Rooms, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    phone, turn = await begun(rooms, stand_in, "WORDS:9 gated")
    session = stand_in.dashboard.live()[0].stored_id
    mine = await rooms.send(phone, "SAY:mine", session_id=session)
    assert mine["position"] == 1
    stand_in.agent.gate.set()
    assert (await rooms.ended(turn))["text"] == "w1 w2 w3 w4 w5 w6 w7 w8 w9"
    assert (await rooms.ended(mine["turn_id"]))["text"] == "mine"


async def test_it_may_ask_and_be_stopped(rooms: Rooms, stand_in: StandIn) -> None:
    phone, turn = await begun(rooms, stand_in, "APPROVE:rm one")
    (asked,) = await kept(rooms, "approval.request")
    assert asked["turn_id"] == turn
    assert (await rooms.turns.stop(phone, turn, None))["stopped"]
    assert (await rooms.ended(turn))["finish"] == "stopped"


async def test_no_more_of_them_are_shown_than_one_device_may_have(
    rooms: Rooms, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_OF_DEVICE", 2)
    stand_in.agent.gate.clear()
    phone, _ = await begun(rooms, stand_in, "WORDS:9 gated")
    await phone.event("assistant.delta")
    lease = next(iter(rooms.turns._live.values())).bound.lease
    for _ in range(5):
        rooms.turns.begun(lease, lambda hearer: asyncio.Future)
    assert len(rooms.turns.running(phone.device_id)) == 2


async def test_a_cut_leaves_it_uncertain(house: House, rooms: Rooms, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    phone, turn = await begun(rooms, stand_in, "WORDS:9 gated")
    await phone.event("assistant.delta")
    stand_in.dashboard.hang_up()
    end = await rooms.ended(turn)
    assert (end["finish"], end["text"]) == ("uncertain", "w1")


async def test_so_does_a_restart_of_the_relay(house: House, rooms: Rooms, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    _, turn = await begun(rooms, stand_in, "WORDS:9 gated")
    await rooms.db.write(lambda tx: None)
    rooms = await house.restart()
    assert (await rooms.ended(turn))["finish"] == "uncertain"


async def test_a_deleted_conversation_is_not_brought_back_by_a_message(rooms: Rooms, stand_in: StandIn) -> None:
    phone = rooms.phone()
    session = (await rooms.ended((await rooms.send(phone, "SAY:one"))["turn_id"]))["session_id"]
    await rooms.hermes.delete(session)
    assert stand_in.dashboard.live() == []
    end = await rooms.ended((await rooms.send(phone, "SAY:two", session_id=session))["turn_id"])
    assert (end["finish"], end["error"]["code"]) == ("failed", "session_not_found")
    assert stand_in.agent.history.find(session) is None
