"""Turns of the dashboard: who hears them, how they are interrupted, what they ask, and what outlives a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from app.demo import texts
from app.demo.agent import Agent
from app.demo.stand_in import StandIn, serve_stand_in
from tests.demo.board import Board, Fault, Json, board
from tests.demo.client import Client
from tests.demo.conftest import KEY


@pytest.fixture
async def phone(stand_in: StandIn) -> AsyncIterator[Board]:
    async with board(stand_in) as opened:
        await opened.create()
        yield opened


async def test_a_second_message_interrupts_the_turn_and_is_the_next_one(phone: Board, stand_in: StandIn) -> None:
    agent = stand_in.agent
    agent.gate.clear()
    assert await phone.submit("gated SAY:one two three") == "streaming"
    await phone.until("message.delta")
    assert await phone.submit("SAY:second") == "queued"
    assert (await phone.until("message.complete"))["status"] == "interrupted"
    complete = await phone.until("message.complete")
    assert (complete["status"], complete["text"]) == ("complete", "second")
    await phone.idle()
    await agent.idle()
    history = await phone.call("session.history")
    assert [row["text"] for row in history["messages"]] == ["gated SAY:one two three", "one", "SAY:second", "second"]


async def test_what_waits_in_the_queue_is_merged(phone: Board, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    await phone.submit("gated SAY:one two")
    await phone.until("message.delta")
    await both(phone, ("prompt.submit", {"text": "WORDS:1"}), ("prompt.submit", {"text": "WORDS:2"}))
    await phone.until("message.complete", lambda end: end["status"] == "interrupted")
    await phone.until("message.complete")
    await stand_in.agent.idle()
    assert (await phone.call("session.history"))["messages"][2]["text"] == "WORDS:1\n\nWORDS:2"


async def test_an_interrupt_drops_what_waits_in_the_queue(phone: Board, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    await phone.submit("gated SAY:one two")
    await phone.until("message.delta")
    await both(phone, ("prompt.submit", {"text": "SAY:never"}), ("session.interrupt", {}))
    await phone.idle()
    await stand_in.agent.idle()
    assert [row["text"] for row in (await phone.call("session.history"))["messages"]] == ["gated SAY:one two", "one"]


async def test_an_interrupt_while_it_asks_repeats_nothing_that_was_said_before(phone: Board) -> None:
    await phone.submit("PRE:I look.\nAPPROVE:rm a")
    await phone.until("approval.request")
    await phone.call("session.interrupt")
    end = await phone.until("message.complete")
    assert (end["status"], end["text"]) == ("interrupted", None)


async def both(phone: Board, *calls: tuple[str, Json]) -> None:
    """Calls that the server reads before it does anything else: one segment of the wire."""
    frames = [
        Frame(Opcode.TEXT, json.dumps(
            {"jsonrpc": "2.0", "id": method, "method": method, "params": {"session_id": phone.session_id} | params}
        ).encode()).serialize(mask=True)
        for method, params in calls
    ]  # fmt: skip
    phone.socket.transport.write(b"".join(frames))


async def test_a_turn_outlives_its_socket_and_is_heard_again_after_resume(stand_in: StandIn, client: Client) -> None:
    stand_in.agent.gate.clear()
    async with board(stand_in) as phone:
        await phone.create()
        await phone.submit("gated SAY:one two three")
        await phone.until("message.delta")
    await stand_in.dashboard.until(lambda: not stand_in.dashboard.sockets)
    async with board(stand_in) as again:
        resumed = await again.resume(phone.stored_id)
        assert (resumed["session_id"], resumed["inflight"]["assistant"]) == (phone.session_id, "one")
        stand_in.agent.gate.set()
        assert (await again.until("message.complete"))["text"] == "one two three"
        assert again.said() == " two three"
    assert (await client.rows(phone.stored_id))[-1]["content"] == "one two three"


async def test_the_last_to_resume_or_to_submit_gets_the_events(phone: Board, stand_in: StandIn) -> None:
    await phone.ask("SAY:one")
    async with board(stand_in) as other:
        await other.resume(phone.stored_id)
        heard = len(phone.events)
        assert await other.submit("SAY:two") == "streaming"
        assert (await other.until("message.complete"))["text"] == "two"
        await other.idle()
        await phone.call("session.usage")
        assert {event["type"] for event in phone.events[heard:]} <= {"session.title"}
        assert (await phone.ask("SAY:three"))["text"] == "three"
        assert "three" not in other.said()


async def test_an_idle_conversation_is_reaped_some_time_after_its_client_has_gone(stand_in: StandIn) -> None:
    dashboard = stand_in.dashboard
    assert dashboard.reap_s == 20
    dashboard.reap_s = 0
    stand_in.agent.gate.clear()
    async with board(stand_in) as phone, board(stand_in) as busy:
        await phone.create()
        await phone.ask("SAY:one")
        await busy.create()
        await busy.submit("gated SAY:one two")
        await busy.until("message.delta")
    await stand_in.dashboard.until(lambda: [live.id for live in dashboard.live()] == [busy.session_id])
    async with board(stand_in) as again:
        resumed = await again.resume(phone.stored_id)
        assert (resumed["session_id"] != phone.session_id, resumed["running"]) == (True, False)
        assert resumed["messages"][-1] == {"role": "assistant", "text": "one"}


@pytest.mark.parametrize(
    ("choice", "status", "says"),
    [("once", None, texts.CLEANED_UP), ("deny", "blocked", texts.CLEAN_UP_ENDS["deny"])],
)
async def test_a_newcomer_is_asked_for_permission(phone: Board, choice: str, status: str | None, says: str) -> None:
    await phone.submit("Please delete the old logs!")
    asked = await phone.until("approval.request")
    assert asked["command"] == texts.CLEAN_UP_COMMAND
    assert phone.said("reasoning.delta") == texts.CLEAN_UP_THOUGHT
    assert await phone.call("approval.respond", choice=choice) == {"resolved": 1}
    assert (await phone.until("tool.complete"))["result"].get("status") == status
    assert (await phone.until("message.complete"))["text"] == says


async def test_an_approval_that_nobody_answers_expires_silently(phone: Board, stand_in: StandIn) -> None:
    stand_in.agent.asks.approval_timeout_s = 0.01
    await phone.submit("clean up")
    await phone.until("approval.request")
    heard = len(phone.events)
    done = await phone.until("tool.complete")
    assert [event["type"] for event in phone.events[heard:]] == ["tool.complete"]
    assert done["result"]["error"].startswith("BLOCKED: Command timed out without user response.")
    assert (await phone.until("message.complete"))["text"] == texts.CLEAN_UP_ENDS["timeout"]
    assert await phone.call("approval.respond", choice="once") == {"resolved": 0}


@pytest.mark.parametrize("said", ["Which colour is best?", "help me choose", "ask me something"])
async def test_a_newcomer_is_asked_a_question(phone: Board, said: str) -> None:
    await phone.submit(said)
    asked = await phone.until("clarify.request")
    assert (asked["question"], asked["choices"]) == (texts.COLOUR, list(texts.COLOURS))
    await phone.call("clarify.respond", request_id=asked["request_id"], answer="Blue")
    assert (await phone.until("message.complete"))["text"].startswith("Blue it is.")
    with pytest.raises(Fault) as refused:
        await phone.call("clarify.respond", request_id=asked["request_id"], answer="Red")
    assert refused.value.code == 4009


async def test_a_question_that_nobody_answers(phone: Board, stand_in: StandIn) -> None:
    stand_in.agent.asks.question_timeout_s = 0
    await phone.submit("ask me something")
    assert (await phone.until("tool.complete"))["result"]["user_response"] == ""
    assert (await phone.until("message.complete"))["text"] == texts.chosen("")


async def test_of_two_approvals_the_oldest_is_answered(phone: Board) -> None:
    await phone.submit("APPROVE2:rm a|rm b")
    asked = [(await phone.until("approval.request"))["command"] for _ in range(2)]
    assert asked == ["rm a", "rm b"]
    await phone.call("approval.respond", choice="once")
    first = await phone.until("tool.complete")
    await phone.call("approval.respond", choice="deny")
    second = await phone.until("tool.complete")
    assert [done["args"]["command"] for done in (first, second)] == asked
    assert [done["result"]["exit_code"] for done in (first, second)] == [0, -1]
    assert (await phone.until("message.complete"))["text"].endswith("| done after 2 result(s)")


async def test_what_is_allowed_for_the_session_is_not_asked_again(phone: Board, stand_in: StandIn) -> None:
    await phone.submit("APPROVE:rm a")
    await phone.until("approval.request")
    await phone.call("approval.respond", choice="session")
    await phone.idle()
    assert (await phone.ask("APPROVE:rm b"))["status"] == "complete"
    async with board(stand_in) as other:
        await other.create()
        await other.submit("APPROVE:rm c")
        await other.until("approval.request")


async def test_an_interrupt_denies_what_is_asked(phone: Board) -> None:
    await phone.submit("APPROVE:rm a")
    await phone.until("approval.request")
    await phone.call("session.interrupt")
    assert (await phone.until("tool.complete"))["result"]["status"] == "blocked"
    assert (await phone.until("message.complete"))["status"] == "interrupted"
    assert await phone.call("approval.respond", choice="once") == {"resolved": 0}


async def test_compression_moves_the_stored_conversation_and_not_the_open_one(phone: Board, client: Client) -> None:
    await phone.ask("SAY:before")
    complete = await phone.ask("COMPRESS SAY:after")
    assert complete["usage"]["compressions"] == 1
    moved_to = [event for event in phone.events if event["type"] == "session.info"][-1]["payload"]["stored_session_id"]
    assert moved_to != phone.stored_id
    assert (await phone.ask("SAY:more"))["text"] == "more"
    assert [row["content"] for row in await client.rows(moved_to)][-2:] == ["SAY:more", "more"]
    assert (await phone.resume(phone.stored_id))["resumed"] == moved_to


async def test_a_dropped_connection(stand_in: StandIn, client: Client) -> None:
    async with board(stand_in) as phone:
        await phone.create()
        with pytest.raises(ConnectionClosed):
            await phone.ask("cut:1 SAY:one two")
        assert phone.said() == "one"
    await stand_in.agent.idle()
    async with board(stand_in) as again:
        resumed = await again.resume(phone.stored_id)
        assert (resumed["session_id"], resumed["messages"][-1]["text"]) == (phone.session_id, "one two")
        with pytest.raises(ConnectionClosed):
            await again.ask("cut:0 lost SAY:three")
    await stand_in.agent.idle()
    assert (await client.rows(phone.stored_id))[-1]["role"] == "user"
    async with board(stand_in) as third:
        assert (await third.resume(phone.stored_id))["session_id"] != phone.session_id


async def test_a_turn_whose_end_is_not_said(phone: Board, client: Client) -> None:
    await phone.submit("nodone COMPRESS SAY:one")
    await phone.idle()
    was, phone.stored_id = phone.stored_id, phone.events[-1]["payload"]["stored_session_id"]
    assert (await phone.resume(was))["resumed"] == phone.stored_id != was
    assert "message.complete" not in {event["type"] for event in phone.events}
    assert (await client.rows(phone.stored_id))[-1]["content"] == "one"


async def test_a_crash(phone: Board) -> None:
    await phone.submit("error")
    assert await phone.until("error") == {"message": texts.ERROR}
    await phone.idle()


async def test_events_that_nobody_knows(phone: Board) -> None:
    assert (await phone.ask("custom SAY:one two"))["text"] == "one two"
    assert {"memory.updated", "custom.preview"} <= {event["type"] for event in phone.events}


async def test_bench_over_the_socket(phone: Board) -> None:
    complete = await phone.ask("bench:1000:0:16")
    deltas = [event["payload"]["text"] for event in phone.events if event["type"] == "message.delta"]
    times = [int(delta.split()[0].removeprefix("t=")) for delta in deltas]
    assert (len(deltas), times) == (1000, sorted(times))
    assert all(delta.endswith(" " + "x" * 16) for delta in deltas)
    assert complete["usage"]["output"] == 1000


async def test_a_stopping_agent_closes_the_sockets_and_may_come_back() -> None:
    agent = Agent(delay_s=0)
    agent.gate.clear()
    async with AsyncExitStack() as sockets:
        async with serve_stand_in(KEY, agent=agent) as served:
            port = int(served.dashboard_url.rpartition(":")[2])
            phone = await sockets.enter_async_context(board(served))
            await phone.create()
            await phone.submit("gated SAY:one two")
            await phone.until("message.delta")
        with pytest.raises(ConnectionClosed):
            await phone.until("message.complete")
    async with serve_stand_in(KEY, agent=agent, dashboard_port=port) as served, board(served) as again:
        resumed = await again.resume(phone.stored_id)
        assert (resumed["running"], resumed["session_id"] != phone.session_id) == (False, True)
        assert [row["role"] for row in resumed["messages"]] == ["user"]
