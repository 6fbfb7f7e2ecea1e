"""A killed process, a full disk, too much at once, a clock that is set."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from app.approvals.ask import MAX_TEXT, Ask
from app.approvals.errors import ApprovalClosed, ApprovalExpired, ApprovalUnknown, ApprovalWaiting
from app.approvals.register import MAX_ALL, MAX_OF_TURN
from app.delivery.keep import MAX_BODY
from app.errors import OutcomeUncertain
from app.hermes.errors import UpstreamUnreachable
from app.outbox import retention, wakes
from app.outbox.wakes import Overdue, Unseen
from app.push import store as push
from app.push.notice import of_frames
from tests.approvals.rooms import Agent, Rooms, outcomes, requests

# killed


async def test_what_was_open_is_open_after_a_restart_and_answerable_once_its_turn_is_found(rooms: Rooms) -> None:
    first, second = await rooms.ask("one"), await rooms.ask("two")
    question = await rooms.question()
    before, listed = await rooms.kept(), rooms.approvals.open()
    await rooms.pass_time(10)
    await rooms.crash()
    assert rooms.approvals.open() == listed
    assert await rooms.kept() == before
    with pytest.raises(UpstreamUnreachable):
        await rooms.respond(first)
    rooms.approvals.adopt("t1", rooms.agent)
    with pytest.raises(ApprovalWaiting):
        await rooms.respond(second)
    assert (await rooms.respond(first))["outcome"] == "allowed"
    assert (await rooms.approvals.answer("phone", question, "dev", None))["outcome"] == "answered"
    assert rooms.agent.questions == {"r1": "dev"}
    assert (await rooms.respond(second))["outcome"] == "allowed"
    assert rooms.agent.allowed == ["one", "two"]


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


# too much


async def test_more_than_is_shown_blocks_its_lane(rooms: Rooms) -> None:
    for n in range(MAX_OF_TURN + 3):
        await rooms.ask(f"{n}", wait=False)
    await rooms.quiet()
    assert len(rooms.approvals.of_turn("t1")) == MAX_OF_TURN == len(await rooms.kept())
    await rooms.pass_time(1)
    for said in rooms.approvals.open()[0]:
        await rooms.respond(said["approval_id"])
        await rooms.quiet()
    assert len(rooms.agent.allowed) == MAX_OF_TURN
    behind = await rooms.ask("behind", timeout_s=600.0)
    with pytest.raises(ApprovalWaiting):
        await rooms.respond(behind)
    await rooms.pass_time(60.5)
    assert rooms.states() == {"behind": "waiting"}
    await rooms.pass_time(0.6)  # by now Hermes has given up what was not shown
    assert rooms.states() == {"behind": "open"}


async def test_going_on_unblocks_what_waits_behind_more_than_is_shown(rooms: Rooms) -> None:
    for n in range(MAX_OF_TURN + 2):
        await rooms.ask(f"{n}", wait=False)
    await rooms.quiet()
    rooms.approvals.passed("t1")
    await rooms.ask("next")
    assert rooms.states() == {"next": "open"}


async def test_all_turns_together_are_bounded(rooms: Rooms) -> None:
    for n in range(MAX_ALL + 3):
        await rooms.ask(f"{n}", wait=False, lane=f"s{n}", turn_id=f"t{n}")
    await rooms.quiet()
    assert len(rooms.approvals.open()[0]) == MAX_ALL


@pytest.mark.parametrize("letter", ["x", "€", "\x00", '"'])
async def test_long_texts_are_cut_and_marked(rooms: Rooms, letter: str) -> None:
    id = await rooms.ask(letter * 400_000, description=letter * 400_000, choices=("once", "y" * 9000, "deny"))
    question = await rooms.question(letter * 400_000, choices=tuple("z" * 1024 + str(n) for n in range(500)))
    await rooms.approvals.answer("phone", question, letter * 65_536, None)
    assert rooms.agent.questions == {"r1": letter * 65_536}
    for _, said in await rooms.kept():
        assert said["truncated"] is True
        assert len(orjson.dumps(said)) < MAX_BODY
    said = rooms.approvals.open()[0][0]
    assert MAX_TEXT * 0.9 < len(orjson.dumps(said["summary"])) <= MAX_TEXT + 2
    assert (said["approval_id"], said["choices"]) == (id, ["once", "deny"])


async def test_what_devices_are_told_at_once_fits_into_a_frame(rooms: Rooms) -> None:
    for n in range(MAX_ALL):
        await rooms.ask("x" * 20_000, description="y" * 20_000, wait=False, lane=f"s{n}", turn_id=f"t{n}")
    await rooms.quiet()
    assert 1 < len(rooms.approvals.open()[0]) < MAX_ALL
    assert len(orjson.dumps(rooms.approvals.open())) < 2 * 1024 * 1024


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


# waking and forgetting


async def frames(rooms: Rooms) -> Sequence[Unseen]:
    """What the phone would be woken for."""
    everything = Overdue("phone", 0, 0, 0, 0, None)
    return await rooms.db.read(lambda tx: wakes.unseen(tx, everything, rooms.now, 100))


async def unseen(rooms: Rooms) -> list[tuple[str, float]]:
    """Its kind and end."""
    return [(frame.kind, frame.expires_at or 0.0) for frame in await frames(rooms)]


async def test_what_can_be_answered_wakes_as_long_as_it_can(rooms: Rooms) -> None:
    first = await rooms.ask("one")
    await rooms.ask("two", timeout_s=600.0)
    assert await unseen(rooms) == [("approval", rooms.now + 57)]  # the second will when its turn has come
    await rooms.pass_time(30)
    assert await unseen(rooms) == [("approval", rooms.now + 27)]  # the reminder, in place of the first
    await rooms.respond(first)
    await rooms.quiet()
    assert await unseen(rooms) == [("approval", rooms.now + 567)]
    rooms.approvals.ended("t1")
    await rooms.quiet()
    assert await unseen(rooms) == []
    await rooms.question()
    assert await unseen(rooms) == [("question", rooms.now + 57)]


async def test_a_push_says_that_something_is_asked_and_not_what(rooms: Rooms) -> None:
    await rooms.ask("rm -r build", description="deletes", timeout_s=600.0)
    later = Unseen(9, "end", "turn", rooms.now, None, 60.0)
    notice = of_frames([later, *await frames(rooms)], None, "none", "relay", rooms.now)
    assert notice.payload() == {
        "kind": "approval", "count": 2, "relay_id": "relay", "head": 9, "collapse": "approvals",
        "body": "Your approval is needed, and 1 more",
    }  # fmt: skip
    assert (notice.urgent, notice.ttl_s) == (True, 597)
    await rooms.question("Which branch?")
    asked = await frames(rooms)
    assert [of_frames(asked[:count], None, "none", "relay", rooms.now).said for count in (1, 2)] == [
        "There is a question for you",
        "There is a question for you, and 1 more",
    ]
    body = await rooms.db.read(lambda tx: push.body_of(tx, asked[0].id))
    assert of_frames(asked, body, "full", "relay", rooms.now).text == "Which branch?"


async def test_what_is_closed_is_known_for_thirty_days(rooms: Rooms) -> None:
    first = await rooms.ask()
    await rooms.respond(first)
    still_open = await rooms.ask("open", timeout_s=86400.0 * 7)
    day = 86400.0
    await rooms.db.write(lambda tx: retention.sweep(tx, rooms.now + 30 * day - 1))
    with pytest.raises(ApprovalClosed):
        await rooms.respond(first)
    await rooms.db.write(lambda tx: retention.sweep(tx, rooms.now + 30 * day + 1))
    with pytest.raises(ApprovalUnknown):
        await rooms.respond(first)
    assert (await rooms.row(still_open))["state"] == "open"


async def test_an_ask_of_no_turn_ends_by_an_answer_or_by_time(rooms: Rooms) -> None:
    agent = Agent(rooms.clock)
    rooms.approvals.asked(Ask(lane="bridge", kind="approval", summary="sms", timeout_s=60.0), agent)
    await rooms.until(lambda kept: len(kept) == 1)
    (said,) = rooms.approvals.open()[0]
    assert said["choices"] == ["once", "deny"]
    await rooms.pass_time(57)
    assert (await rooms.outcome(said["approval_id"]))["outcome"] == "expired"
