"""The events of the dashboard, beside those recorded from hermes-agent 0.19."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.demo.stand_in import StandIn
from tests.demo.board import Board, Json, board
from tests.demo.client import Client

RECORDED = json.loads((Path(__file__).parent / "recorded" / "dashboard_0_19.json").read_text())
ON_ITS_OWN = {"session.info", "session.title"}  # come when they like, also in the recordings
TURNS = {
    "text": "SAY:echo: hello over websocket",
    "tool and reasoning": "THINK:first this then that\nPRE:let me run it\nTOOL:terminal:echo hi",
    "approval": "TOOL:terminal:rm -rf /home/hermes/wsdir",
    "question": 'TOOL:clarify:{"question":"Which?","choices":["red","blue"]}',
    "interrupt": "gated WORDS:60",
    "failure": "fail",
}
EXACT = {"approval.request", "message.interim", "tool.generating"}  # compared value by value


def outline(events: list[Json]) -> list[tuple[str, list[str]]]:
    """Names and fields in their order, runs of the same one as one."""
    found: list[tuple[str, list[str]]] = []
    for event in events:
        line = (event["type"], list(event.get("payload", {})))
        if event["type"] not in ON_ITS_OWN and found[-1:] != [line]:
            found.append(line)
    return found


def told(events: list[Json], type_: str) -> str:
    return "".join(event["payload"]["text"] for event in events if event["type"] == type_)


def all_of(events: list[Json], *types: str) -> list[Any]:
    return [event["payload"] for event in events if event["type"] in types]


async def played(phone: Board, what: str) -> list[Json]:
    """The events of the turn, with an answer to whatever it asks."""
    assert await phone.submit(TURNS[what]) == "streaming"
    if what == "approval":
        await phone.until("approval.request")
        assert await phone.call("approval.respond", choice="once") == {"resolved": 1}
    elif what == "question":
        asked = await phone.until("clarify.request")
        assert await phone.call("clarify.respond", request_id=asked["request_id"], answer="blue") == {"status": "ok"}
    elif what == "interrupt":
        await phone.until("message.delta")
        assert await phone.call("session.interrupt") == {"status": "interrupted"}
    await phone.until("message.complete")
    return phone.events[1:]  # without gateway.ready


@pytest.mark.parametrize("what", sorted(TURNS))
async def test_a_turn_sounds_as_it_was_recorded(stand_in: StandIn, what: str) -> None:
    recorded = RECORDED["events"][what]
    if what == "interrupt":
        stand_in.agent.gate.clear()
    async with board(stand_in) as phone:
        await phone.create()
        events = await played(phone, what)
        mine, theirs = outline(events), outline(recorded)
        if what == "failure":  # the recorded one is not its session's first turn, so that its usage has more fields
            mine, theirs = mine[:-1], theirs[:-1]
        assert [name for name, _ in mine] == [name for name, _ in theirs]
        for (name, fields), (_, expected) in zip(mine, theirs, strict=True):
            assert fields == expected, name
    for type_ in EXACT:
        assert all_of(events, type_) == all_of(recorded, type_)
    if what != "failure":
        for type_ in ("message.delta", "reasoning.delta"):
            assert told(events, type_) == told(recorded, type_)
        (mine_end,), (their_end,) = all_of(events, "message.complete"), all_of(recorded, "message.complete")
        assert {**mine_end, "usage": {}} == {**their_end, "usage": {}}
    for mine_tool, their_tool in zip(
        all_of(events, "tool.start", "tool.complete"), all_of(recorded, "tool.start", "tool.complete"), strict=True
    ):
        changing = {"tool_id": "", "duration_s": 0}
        assert mine_tool | changing == their_tool | changing


async def test_session_info_and_usage_have_the_recorded_fields(stand_in: StandIn) -> None:
    async with board(stand_in) as phone:
        await phone.create()
        await phone.ask("SAY:one")
        first, last = all_of(phone.events, "session.info")
        assert list(first) == list(all_of(RECORDED["events"]["text"], "session.info")[0])
        assert (first["running"], last["running"]) == (True, False)
        assert list(await phone.call("session.usage")) == list(RECORDED["results"]["session.usage"])
        assert list(last["usage"]) == list(RECORDED["results"]["session.usage"])


async def test_results_have_the_recorded_fields(stand_in: StandIn, client: Client) -> None:
    stand_in.agent.gate.clear()
    await client.ask("SAY:echo: hello again")
    async with board(stand_in) as phone, board(stand_in) as other:
        created, recorded = await phone.create(), RECORDED["results"]
        assert (list(created), list(created["info"])) == (
            list(recorded["session.create"]),
            list(recorded["session.create"]["info"]),
        )
        await phone.submit("gated WORDS:3")
        await phone.until("message.delta")
        (listed,) = (await other.call("session.active_list"))["sessions"]
        assert listed.keys() == recorded["session.active_list"].keys()
        assert (listed["status"], listed["preview"], listed["id"]) == ("working", "w1", phone.session_id)
        running = await other.resume(phone.stored_id)
        assert running.keys() == recorded["running"].keys()
        assert running["inflight"] == {"assistant": "w1", "streaming": True, "user": "gated WORDS:3"}
        assert (running["running"], running["status"], running["message_count"]) == (True, "working", 0)
        closed = await other.resume(client.session_id)
        assert closed.keys() == recorded["closed"].keys()
        assert closed["info"].keys() == recorded["closed"]["info"].keys()
        assert closed["messages"][0]["role"] == "user"
        assert (closed["running"], closed["inflight"], closed["resumed"]) == (False, None, client.session_id)


async def test_history_shows_tools_by_what_they_were_about(stand_in: StandIn) -> None:
    async with board(stand_in) as phone:
        await phone.create()
        await played(phone, "question")
        recorded = RECORDED["results"]["session.history"][:3]
        assert (await phone.call("session.history"))["messages"] == recorded
