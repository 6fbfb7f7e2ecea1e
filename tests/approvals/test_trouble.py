"""A killed process, a full disk, a clock that is set."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from app.approvals.errors import ApprovalClosed, ApprovalExpired, ApprovalWaiting
from app.errors import OutcomeUncertain
from app.hermes.errors import UpstreamUnreachable
from tests.approvals.rooms import Rooms, outcomes, requests

# killed


async def test_what_was_open_is_open_after_a_restart_and_answerable_once_its_turn_is_found(rooms: Rooms) -> None:
    first = await rooms.ask("one")
    question = await rooms.question()
    before, listed = await rooms.kept(), rooms.approvals.open()
    await rooms.pass_time(10)
    await rooms.crash()
    assert rooms.approvals.open() == listed
    assert await rooms.kept() == before
    with pytest.raises(UpstreamUnreachable):
        await rooms.respond(first)
    rooms.approvals.adopt("t1", rooms.agent)
    assert (await rooms.respond(first))["outcome"] == "allowed"
    assert (await rooms.approvals.answer("phone", question, "dev", None))["outcome"] == "answered"
    assert (rooms.agent.allowed, rooms.agent.questions) == (["one"], {"r1": "dev"})


@pytest.mark.parametrize("asked", ["before", "after"])
async def test_after_a_restart_only_the_last_one_asked_can_be_told_from_the_others(rooms: Rooms, asked: str) -> None:
    """The first may have been answered on the dashboard meanwhile: then an answer to it would reach the second."""
    first = await rooms.ask("one", tool_id="c1")
    if asked == "before":
        await rooms.ask("two", timeout_s=600.0)
    rooms.agent.pending = rooms.agent.pending[1:]
    await rooms.crash()
    rooms.approvals.adopt("t1", rooms.agent)
    if asked == "after":
        await rooms.ask("two", timeout_s=600.0)
    assert await rooms.outcome(first) == {"approval_id": first, "turn_id": "t1", "outcome": "uncertain"}
    with pytest.raises(ApprovalClosed):
        await rooms.respond(first)
    await rooms.quiet()
    assert (rooms.states(), rooms.agent.calls) == ({"two": "waiting"}, [])
    await rooms.pass_time(62.1)
    assert rooms.states() == {"two": "open"}


async def test_hearing_that_the_agent_went_on_ends_that_doubt(rooms: Rooms) -> None:
    await rooms.ask("one", tool_id="c1")
    await rooms.ask("two", tool_id="c2")
    await rooms.crash()
    rooms.approvals.passed("t1", "c1")
    assert rooms.states() == {"two": "open"}


async def test_killed_while_an_answer_was_on_its_way(rooms: Rooms) -> None:
    first, second = await rooms.ask("one"), await rooms.ask("two", timeout_s=600.0)
    rooms.agent.gate.clear()
    rooms.tasks.start(rooms.respond(first, "session", key="k"), "answer")
    await rooms.agent.called.wait()
    assert (await rooms.row(first))["state"] == "answering"
    await rooms.crash()
    rooms.agent.gate.set()
    rooms.approvals.adopt("t1", rooms.agent)
    assert await rooms.outcome(first) == {
        "approval_id": first, "turn_id": "t1", "outcome": "uncertain", "choice": "session", "by": "phone",
    }  # fmt: skip
    for key, error in (("k", OutcomeUncertain), ("k2", ApprovalClosed)):
        with pytest.raises(error):
            await rooms.respond(first, "session", key=key)
    with pytest.raises(ApprovalWaiting):
        await rooms.respond(second)
    await rooms.crash()  # it goes on blocking
    rooms.approvals.adopt("t1", rooms.agent)
    with pytest.raises(ApprovalWaiting):
        await rooms.respond(second)
    assert rooms.agent.calls == ["session"]
    await rooms.pass_time(62.1)
    assert rooms.states() == {"two": "open"}
    assert len(outcomes(await rooms.kept(), first)) == 1


async def test_killed_before_it_was_stored_that_an_answer_is_given(rooms: Rooms) -> None:
    first = await rooms.ask()
    reached = asyncio.Event()

    async def never(work: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    rooms.approvals._course.ledger.write = never  # type: ignore[method-assign]
    rooms.tasks.start(rooms.respond(first, key="k"), "answer")
    await reached.wait()
    await rooms.crash()
    rooms.approvals.adopt("t1", rooms.agent)
    assert rooms.agent.calls == []
    assert (await rooms.respond(first, key="k2"))["outcome"] == "allowed"
    assert rooms.agent.calls == ["once"]


async def test_killed_after_an_answer_was_sent_and_before_its_outcome_was_stored(rooms: Rooms) -> None:
    first = await rooms.ask()
    decide = rooms.agent.decide

    locks: list[sqlite3.Connection] = []

    async def then_locked(choice: str) -> int:
        count = await decide(choice)
        locks.append(await rooms.lock_disk())
        return count

    rooms.agent.decide = then_locked  # type: ignore[method-assign]
    assert (await rooms.respond(first, key="k"))["outcome"] == "allowed"
    assert (await rooms.row(first))["state"] == "answering"
    locks[0].close()
    await rooms.crash()
    rooms.approvals.adopt("t1", rooms.agent)
    assert (await rooms.outcome(first))["outcome"] == "uncertain"
    with pytest.raises(ApprovalClosed):
        await rooms.respond(first)
    assert rooms.agent.calls == ["once"]


async def test_what_expired_while_the_relay_was_away(rooms: Rooms) -> None:
    first = await rooms.ask("one")
    await rooms.pass_time(20)
    second = await rooms.ask("two")
    rooms.clock.advance(38)
    await rooms.crash()
    rooms.approvals.adopt("t1", rooms.agent)
    assert (await rooms.outcome(first))["outcome"] == "expired"
    assert rooms.states() == {"two": "waiting"}  # 58 s after the first: Hermes may still wait for it
    await rooms.crash()  # and that outlives another restart
    rooms.approvals.adopt("t1", rooms.agent)
    with pytest.raises(ApprovalWaiting):
        await rooms.respond(second)
    await rooms.pass_time(4.1)
    assert rooms.states() == {"two": "open"}
    await rooms.respond(second)
    assert rooms.agent.allowed == ["two"]
    assert len(outcomes(await rooms.kept(), first)) == 1


async def test_time_goes_on_after_a_restart(rooms: Rooms) -> None:
    first = await rooms.ask()
    await rooms.pass_time(20)
    await rooms.crash()
    await rooms.pass_time(10)
    assert [said.get("reminder") for _, said in await rooms.kept()] == [None, True]
    await rooms.crash()
    await rooms.pass_time(27)
    assert (await rooms.outcome(first))["outcome"] == "expired"
    assert len(requests(await rooms.kept())) == 2


async def test_the_end_of_a_turn_that_was_cut_off_ends_its_asks(rooms: Rooms) -> None:
    first = await rooms.ask()
    await rooms.crash()
    rooms.approvals.ended("t1")
    assert (await rooms.outcome(first))["outcome"] == "resolved_elsewhere"


async def test_closing_waits_for_what_has_become_of_asks(rooms: Rooms) -> None:
    first = await rooms.ask()
    rooms.approvals.ended("t1")
    await rooms.approvals.close()
    assert (await rooms.row(first))["outcome"] == "resolved_elsewhere"


# a full disk


async def test_an_ask_waits_a_while_for_a_full_disk(rooms: Rooms) -> None:
    await rooms.fill_disk()
    await rooms.ask("one" * 4000, wait=False)
    await rooms.quiet()
    assert (await rooms.kept(), rooms.states()) == ([], {})
    await rooms.fill_disk(full=False)
    await rooms.pass_time(1)
    assert [state for _, state in requests(await rooms.kept())] == ["open"]
    assert len(rooms.approvals.open()[0]) == 1


async def test_what_could_not_be_stored_blocks_those_behind_it(rooms: Rooms) -> None:
    """Nobody can answer it, but Hermes would take an answer to the next one for it."""
    await rooms.fill_disk()
    await rooms.ask("hidden" * 2000, wait=False, tool_id="c1")
    for _ in range(4):
        await rooms.pass_time(4)
    await rooms.fill_disk(full=False)
    second = await rooms.ask("two", tool_id="c2")
    assert rooms.states() == {"two": "waiting"}
    with pytest.raises(ApprovalWaiting):
        await rooms.respond(second)
    assert len(await rooms.kept()) == 1
    rooms.approvals.passed("t1", "c1")
    assert rooms.states() == {"two": "open"}


async def test_an_outcome_is_stored_once_there_is_room(rooms: Rooms) -> None:
    first = await rooms.ask()
    await rooms.fill_disk()
    rooms.approvals.passed("t1")
    await rooms.quiet()
    with pytest.raises(ApprovalClosed):
        await rooms.respond(first)
    for _ in range(5):
        await rooms.pass_time(20)
    await rooms.fill_disk(full=False)
    await rooms.pass_time(30)
    assert (await rooms.outcome(first))["outcome"] == "resolved_elsewhere"


# clocks


async def test_a_clock_that_is_set_forward_expires_and_does_not_unblock(rooms: Rooms) -> None:
    first, second = await rooms.ask("one"), await rooms.ask("two", timeout_s=7200.0)
    monotonic = rooms.clock.monotonic()
    rooms.clock.monotonic = lambda: monotonic  # type: ignore[method-assign]
    rooms.clock.advance(3600)
    with pytest.raises(ApprovalExpired):
        await rooms.respond(first)
    with pytest.raises(ApprovalWaiting):
        await rooms.respond(second)


async def test_a_clock_that_is_set_back_keeps_nothing_open(rooms: Rooms) -> None:
    first = await rooms.ask()
    monotonic = rooms.clock.monotonic()
    rooms.clock.monotonic = lambda: monotonic + 58  # type: ignore[method-assign]
    rooms.clock.advance(-3600)
    with pytest.raises(ApprovalExpired):
        await rooms.respond(first)
    assert rooms.agent.calls == []


async def test_one_that_waited_too_long_is_expired_before_any_timer_has_looked(rooms: Rooms) -> None:
    await rooms.ask("one", timeout_s=600.0)
    second = await rooms.ask("two")
    rooms.clock.advance(57.1)
    with pytest.raises(ApprovalExpired):
        await rooms.respond(second)


async def test_one_sleeper_for_all(rooms: Rooms) -> None:
    for n in range(20):
        await rooms.ask(f"{n}", lane=f"s{n}", timeout_s=60.0 + n)
    assert len(rooms.sleeper.naps) == 1
    await rooms.ask("soon", lane="soon", timeout_s=4.0)
    ((at, _),) = rooms.sleeper.naps
    assert at - rooms.now == pytest.approx(1.0)
    await rooms.pass_time(1)
    assert "soon" not in rooms.states()
    rooms.approvals.ended("t1")
    await rooms.quiet()
    assert rooms.sleeper.naps == []
