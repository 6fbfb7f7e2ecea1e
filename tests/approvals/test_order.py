"""Only what would reach the approval that was meant is ever sent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from app.approvals.errors import ApprovalClosed, ApprovalExpired, ApprovalUnknown, ApprovalWaiting, ChoiceUnknown
from tests.approvals.rooms import Agent, Rooms, requests


async def test_only_the_oldest_of_a_lane_can_be_answered(rooms: Rooms) -> None:
    first, second = await rooms.ask("one"), await rooms.ask("two")
    assert rooms.states() == {"one": "open", "two": "waiting"}
    with pytest.raises(ApprovalWaiting):
        await rooms.respond(second)
    assert rooms.agent.calls == []
    assert (await rooms.respond(first))["outcome"] == "allowed"
    kept = await rooms.until(lambda kept: len(requests(kept)) == 3)
    assert requests(kept) == [("one", "open"), ("two", "waiting"), ("two", "open")]
    assert len({said["approval_id"] for type_, said in kept if said.get("summary") == "two"}) == 1
    assert (await rooms.respond(second, "deny"))["outcome"] == "denied"
    assert (rooms.agent.allowed, rooms.agent.denied) == (["one"], ["two"])
    assert rooms.states() == {}


async def test_lanes_do_not_wait_for_each_other(rooms: Rooms) -> None:
    other = Agent(rooms.clock)
    await rooms.ask("one")
    second = await rooms.ask("two", lane="s2", turn_id="t2", agent=other)
    assert rooms.states() == {"one": "open", "two": "open"}
    await rooms.respond(second)
    assert (rooms.agent.calls, other.allowed) == ([], ["two"])


async def test_asks_are_stored_in_the_order_of_the_calls(rooms: Rooms) -> None:
    """As a read callback gives them: several at once."""
    for name in "abcdef":
        await rooms.ask(name, wait=False)
    kept = await rooms.until(lambda kept: len(kept) == 6)
    assert requests(kept) == [("a", "open"), *((name, "waiting") for name in "bcdef")]


@pytest.mark.parametrize("lag", [0.0, 1.9])
@pytest.mark.parametrize("apart", [0.0, 0.4, 3.0, 20.0])
async def test_whenever_the_first_of_two_is_answered_nothing_else_gets_approved(
    rooms: Rooms, lag: float, apart: float
) -> None:
    """`lag`: so much later than Hermes began to wait the relay has heard of it. From before the end to past it."""
    for at in (0.0, 30.0, 56.9, 57.0, 58.0, 59.5, 60.0, 61.0, 61.9, 62.1, 63.0, 65.0, 76.9, 77.0, 80.0):
        agent, lane = Agent(rooms.clock), f"lane {at}"
        began = rooms.clock.monotonic()
        first = await rooms.ask("first", lane=lane, turn_id=lane, agent=agent)
        await rooms.pass_time(apart)
        second = await rooms.ask("second", lane=lane, turn_id=lane, agent=agent)
        agent.pending = [(command, ends - lag) for command, ends in agent.pending]
        rooms.clock.advance(max(0.0, began + at - rooms.clock.monotonic()))  # nothing has looked at the clock yet
        said: list[str] = []
        for name, id in (("first", first), ("second", second)) * 2:
            with suppress(ApprovalExpired, ApprovalClosed, ApprovalWaiting):
                said += [name] if (await rooms.respond(id))["outcome"] == "allowed" else []
            assert agent.allowed == said
            await rooms.quiet()
        await rooms.pass_time(200)
        assert rooms.states() == {}


async def test_an_expired_one_blocks_its_lane_until_hermes_has_surely_given_it_up(rooms: Rooms) -> None:
    first = await rooms.ask("first")
    await rooms.pass_time(10)
    second = await rooms.ask("second")
    await rooms.pass_time(47)
    assert await rooms.outcome(first) == {"approval_id": first, "turn_id": "t1", "outcome": "expired"}
    assert rooms.states() == {"second": "waiting"}
    for seconds in (0.1, 2.8, 2.0):  # up to 61.9 after it was asked: Hermes resolves its oldest, whichever that is
        await rooms.pass_time(seconds)
        with pytest.raises(ApprovalWaiting):
            await rooms.respond(second)
        with pytest.raises(ApprovalExpired):
            await rooms.respond(first)
    assert rooms.agent.calls == []
    await rooms.pass_time(0.2)
    assert rooms.states() == {"second": "open"}
    await rooms.respond(second)
    assert rooms.agent.allowed == ["second"]


async def test_an_answer_that_would_arrive_too_late_is_not_sent_even_if_no_timer_has_looked(rooms: Rooms) -> None:
    first = await rooms.ask()
    rooms.clock.advance(57)
    with pytest.raises(ApprovalExpired):
        await rooms.respond(first)
    assert rooms.agent.calls == []
    assert (await rooms.outcome(first))["outcome"] == "expired"


async def test_time_that_storing_takes_counts(rooms: Rooms) -> None:
    """The clock moves between the decision to send and the commit that must come before it."""
    first = await rooms.ask()
    rooms.clock.advance(56.9)
    write = rooms.db.write

    async def slow(work: Any) -> Any:
        result = await write(work)
        rooms.clock.advance(0.2)
        return result

    rooms.db.write = slow  # type: ignore[method-assign]
    with pytest.raises(ApprovalExpired):
        await rooms.respond(first)
    assert rooms.agent.calls == []
    assert (await rooms.outcome(first))["outcome"] == "expired"


async def test_a_choice_must_be_one_of_those_offered(rooms: Rooms) -> None:
    first = await rooms.ask(choices=("once", "deny"))
    with pytest.raises(ChoiceUnknown):
        await rooms.respond(first, "always")
    with pytest.raises(ApprovalUnknown):
        await rooms.respond("appr-none")
    question = await rooms.question()
    with pytest.raises(ApprovalUnknown):
        await rooms.respond(question, "main")
    assert rooms.agent.calls == []


async def test_the_first_of_two_devices_wins(rooms: Rooms) -> None:
    first = await rooms.ask()
    rooms.agent.gate.clear()
    phone = rooms.tasks.start(rooms.respond(first, "once", by="phone"), "phone")
    await rooms.agent.called.wait()
    tablet = rooms.tasks.start(rooms.respond(first, "deny", by="tablet"), "tablet")
    await rooms.quiet()
    assert not tablet.done()
    assert rooms.states() == {"rm -r build": "open"}
    rooms.agent.gate.set()
    resolved = {"approval_id": first, "turn_id": "t1", "outcome": "allowed", "choice": "once", "by": "phone"}
    assert await phone == resolved
    with pytest.raises(ApprovalClosed):
        await tablet
    with pytest.raises(ApprovalClosed):
        await rooms.respond(first, "deny", by="tablet")
    assert rooms.agent.calls == ["once"]
    assert await rooms.outcome(first) == resolved
    assert await rooms.kept("tablet") == await rooms.kept("phone")


async def test_a_hundred_answers_at_once_send_one(rooms: Rooms) -> None:
    first = await rooms.ask()
    answers = [rooms.respond(first, ("once", "deny")[n % 2], by=f"d{n}", key=f"k{n}") for n in range(100)]
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(result) for result in results].count(dict) == 1
    assert {type(result) for result in results} == {dict, ApprovalClosed}
    assert len(rooms.agent.calls) == 1


async def test_a_copy_of_an_answer_is_answered_and_not_sent(rooms: Rooms) -> None:
    first = await rooms.ask()
    answers = [await rooms.respond(first, key="k") for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    await rooms.crash()
    assert await rooms.respond(first, key="k") == answers[0]
    assert rooms.agent.calls == ["once"]


@pytest.mark.parametrize("first_told", [True, False])
async def test_the_echo_of_our_own_answer_says_nothing_about_the_next_one(rooms: Rooms, first_told: bool) -> None:
    """Hermes's runs say `approval.responded` of every answer, on another connection than the one that confirms it."""
    first, second = await rooms.ask("one"), await rooms.ask("two")
    if first_told:
        rooms.agent.gate.clear()
        answering = asyncio.ensure_future(rooms.respond(first))
        await rooms.agent.called.wait()
        rooms.approvals.answered("t1")
        rooms.agent.gate.set()
        assert (await answering)["outcome"] == "allowed"
    else:
        await rooms.respond(first)
        rooms.approvals.answered("t1")
    assert rooms.states() == {"two": "open"}
    assert (await rooms.respond(second, "deny"))["outcome"] == "denied"
    assert (rooms.agent.allowed, rooms.agent.denied) == (["one"], ["two"])


async def test_the_answer_of_another_client_closes_the_oldest_alone(rooms: Rooms) -> None:
    first, second = await rooms.ask("one"), await rooms.ask("two")
    rooms.agent.pending.pop(0)
    rooms.approvals.answered("t1")
    assert (await rooms.outcome(first))["outcome"] == "resolved_elsewhere"
    assert rooms.states() == {"two": "open"}
    assert (await rooms.respond(second))["outcome"] == "allowed"
    assert rooms.agent.allowed == ["two"]


async def test_an_answer_that_reached_nothing_has_no_echo(rooms: Rooms) -> None:
    first = await rooms.ask("one")
    rooms.agent.pending.clear()
    assert (await rooms.respond(first))["outcome"] == "expired"
    second = await rooms.ask("two")
    rooms.approvals.answered("t1")
    assert (await rooms.outcome(second))["outcome"] == "resolved_elsewhere"
