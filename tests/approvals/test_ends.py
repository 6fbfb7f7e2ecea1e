"""Every approval and question ends, visibly, and each way of ending has its name."""

from __future__ import annotations

from contextlib import closing

import pytest

from app.approvals.errors import ApprovalClosed, ApprovalExpired, ApprovalWaiting, QuestionClosed, QuestionExpired
from app.approvals.service import ANSWER_S
from app.errors import IdReused, OutcomeUncertain, StorageFailed
from app.hermes.errors import StreamBroken, UpstreamBusy, UpstreamFailed, UpstreamUnreachable
from tests.approvals.rooms import Rooms, requests


async def test_the_payload_of_an_approval(rooms: Rooms) -> None:
    id = await rooms.ask(description="it deletes", tool_id="call-1")
    now = rooms.now
    whole = {
        "approval_id": id, "turn_id": "t1", "session_id": "s1", "tool": "terminal", "summary": "rm -r build",
        "description": "it deletes", "choices": ["once", "session", "always", "deny"],
        "asked_at": now, "expires_at": now + 57, "state": "open",
    }  # fmt: skip
    assert await rooms.kept() == [("approval.request", whole)]
    assert rooms.approvals.open() == ([whole], [])
    assert rooms.approvals.of_turn("t1") == [whole]
    assert rooms.approvals.of_turn("t2") == []


async def test_the_payload_of_a_question_and_its_answer(rooms: Rooms) -> None:
    id = await rooms.question()
    now = rooms.now
    whole = {
        "question_id": id, "turn_id": "t1", "session_id": "s1", "text": "Which branch?", "choices": ["main", "dev"],
        "asked_at": now, "expires_at": now + 57,
    }  # fmt: skip
    assert await rooms.kept() == [("question.ask", whole)]
    assert rooms.approvals.open() == ([], [whole])
    assert rooms.approvals.of_turn("t1") == [whole]
    closed = await rooms.approvals.answer("tablet", id, "neither: a new one", "k")
    assert closed == {
        "question_id": id, "turn_id": "t1", "outcome": "answered", "answer": "neither: a new one", "by": "tablet",
    }  # fmt: skip
    assert (await rooms.kept())[1:] == [("question.closed", closed)]
    assert rooms.agent.questions == {"r1": "neither: a new one"}
    assert rooms.approvals.open() == ([], [])
    with pytest.raises(QuestionClosed):
        await rooms.approvals.answer("phone", id, "main", "k2")


async def test_questions_need_no_order_and_expire_like_approvals(rooms: Rooms) -> None:
    first, second = await rooms.question(ref="r1"), await rooms.question(ref="r2", timeout_s=600.0)
    approval = await rooms.ask()
    await rooms.approvals.answer("phone", second, "dev", None)
    assert (await rooms.respond(approval))["outcome"] == "allowed"
    await rooms.pass_time(57)
    assert (await rooms.outcome(first))["outcome"] == "expired"
    with pytest.raises(QuestionExpired):
        await rooms.approvals.answer("phone", first, "main", None)
    assert rooms.agent.questions == {"r1": None, "r2": "dev"}


async def test_what_hermes_does_not_wait_for_any_more_is_expired(rooms: Rooms) -> None:
    first, second = await rooms.ask("one"), await rooms.ask("two")
    question = await rooms.question()
    rooms.agent.pending.clear()
    rooms.agent.questions.clear()
    assert await rooms.respond(first) == await rooms.outcome(first)
    assert (await rooms.outcome(first))["outcome"] == "expired"
    assert rooms.states() == {"two": "open"}  # nothing stands in its way
    assert (await rooms.approvals.answer("phone", question, "main", None))["outcome"] == "expired"
    with pytest.raises(ApprovalExpired):
        await rooms.respond(first)
    assert rooms.approvals.open()[0][0]["approval_id"] == second


async def test_the_agent_went_on_with_one_tool(rooms: Rooms) -> None:
    first, second = await rooms.ask("one", tool_id="c1"), await rooms.ask("two", tool_id="c2")
    rooms.approvals.passed("t1", "c9")
    rooms.approvals.passed("t2")
    assert rooms.states() == {"one": "open", "two": "waiting"}
    rooms.approvals.passed("t1", "c1")
    assert rooms.states() == {"two": "open"}
    assert await rooms.outcome(first) == {"approval_id": first, "turn_id": "t1", "outcome": "resolved_elsewhere"}
    with pytest.raises(ApprovalClosed):
        await rooms.respond(first)
    rooms.approvals.passed("t1", "c2")
    await rooms.outcome(second)
    assert rooms.agent.calls == []


async def test_the_agent_went_on_altogether_or_its_turn_ended(rooms: Rooms) -> None:
    waiting = [await rooms.ask("one"), await rooms.ask("two"), await rooms.question()]
    other = await rooms.ask("other", lane="s2", turn_id="t2")
    rooms.approvals.passed("t1")
    for id in waiting:
        assert (await rooms.outcome(id))["outcome"] == "resolved_elsewhere"
    assert requests(await rooms.kept()) == [("one", "open"), ("two", "waiting"), ("other", "open")]
    rooms.approvals.ended("t2")
    assert (await rooms.outcome(other))["outcome"] == "resolved_elsewhere"


async def test_what_ends_before_it_is_stored_is_never_shown(rooms: Rooms) -> None:
    await rooms.ask("one", wait=False)
    rooms.approvals.ended("t1")
    await rooms.ask("two")
    await rooms.quiet()
    kept = await rooms.kept()
    assert [said["summary"] for type_, said in kept if type_ == "approval.request"] in (["two"], ["one", "two"])
    assert rooms.states() == {"two": "open"}
    shown = {said["approval_id"] for type_, said in kept if type_ == "approval.request"}
    ended = {said["approval_id"] for type_, said in kept if type_ == "approval.resolved"}
    assert ended == shown - {said["approval_id"] for said in rooms.approvals.open()[0]}


async def test_going_on_unblocks_what_waits_behind_an_expired_one(rooms: Rooms) -> None:
    await rooms.ask("one", tool_id="c1")
    await rooms.pass_time(20)
    await rooms.ask("two", tool_id="c2")
    await rooms.pass_time(38)
    assert rooms.states() == {"two": "waiting"}
    rooms.approvals.passed("t1", "c1")
    assert rooms.states() == {"two": "open"}


async def test_one_that_is_being_answered_is_left_alone(rooms: Rooms) -> None:
    first = await rooms.ask()
    rooms.agent.gate.clear()
    answer = rooms.tasks.start(rooms.respond(first), "answer")
    await rooms.agent.called.wait()
    rooms.approvals.passed("t1")
    rooms.approvals.ended("t1")
    await rooms.pass_time(100)
    assert (await rooms.row(first))["state"] == "answering"
    rooms.agent.fails = None
    rooms.agent.pending = [("rm -r build", rooms.now + 1)]
    rooms.agent.gate.set()
    assert (await answer)["outcome"] == "allowed"
    assert (await rooms.outcome(first))["outcome"] == "allowed"


@pytest.mark.parametrize("error", [UpstreamUnreachable(), UpstreamBusy()])
async def test_an_answer_that_was_surely_not_sent_can_be_given_again(rooms: Rooms, error: Exception) -> None:
    first = await rooms.ask()
    rooms.agent.fails = error
    with pytest.raises(type(error)):
        await rooms.respond(first, key="k")
    assert (await rooms.row(first))["state"] == "open"
    assert rooms.states() == {"rm -r build": "open"}
    rooms.agent.fails = None
    assert (await rooms.respond(first, key="k"))["outcome"] == "allowed"
    assert len(await rooms.kept()) == 2


@pytest.mark.parametrize(("meanwhile", "became"), [("late", "expired"), ("gone on", "resolved_elsewhere")])
async def test_one_that_was_not_sent_ends_if_its_time_is_over(rooms: Rooms, meanwhile: str, became: str) -> None:
    first, second = await rooms.ask("one"), await rooms.ask("two", timeout_s=600.0)
    rooms.agent.gate.clear()
    rooms.agent.fails = UpstreamUnreachable()
    answer = rooms.tasks.start(rooms.respond(first), "answer")
    await rooms.agent.called.wait()
    if meanwhile == "late":
        await rooms.pass_time(58)
    else:
        rooms.approvals.passed("t1")
        second = await rooms.ask("three", timeout_s=600.0)
    rooms.agent.gate.set()
    with pytest.raises(UpstreamUnreachable):
        await answer
    assert (await rooms.outcome(first))["outcome"] == became
    await rooms.pass_time(5)
    assert [said["approval_id"] for said in rooms.approvals.open()[0]] == [second]
    assert rooms.approvals.open()[0][0]["state"] == "open"


@pytest.mark.parametrize("error", [OutcomeUncertain(), StreamBroken(), UpstreamFailed(), ValueError("ours")])
async def test_an_answer_of_which_nobody_knows_is_uncertain_and_never_sent_again(
    rooms: Rooms, error: Exception
) -> None:
    first, second = await rooms.ask("one"), await rooms.ask("two", timeout_s=600.0)
    rooms.agent.fails = error
    resolved = await rooms.respond(first, "always", key="k")
    assert resolved == {
        "approval_id": first, "turn_id": "t1", "outcome": "uncertain", "choice": "always", "by": "phone",
    }  # fmt: skip
    assert await rooms.outcome(first) == resolved == await rooms.respond(first, "always", key="k")
    with pytest.raises(ApprovalClosed):
        await rooms.respond(first, "always")
    with pytest.raises(ApprovalWaiting):  # Hermes may still wait for the first
        await rooms.respond(second)
    assert rooms.agent.calls == ["always"]
    await rooms.pass_time(62.1)
    assert rooms.states() == {"two": "open"}


async def test_an_upstream_that_never_confirms_is_uncertain(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ANSWER_S < 60
    monkeypatch.setattr("app.approvals.service.ANSWER_S", 0.01)
    first = await rooms.ask()
    rooms.agent.gate.clear()
    assert (await rooms.respond(first))["outcome"] == "uncertain"


async def test_with_another_payload_a_key_is_refused(rooms: Rooms) -> None:
    first = await rooms.ask()
    await rooms.respond(first, "once", key="k")
    with pytest.raises(IdReused):
        await rooms.respond(first, "deny", key="k")


# reminders


async def test_a_reminder_at_half_time(rooms: Rooms) -> None:
    first = await rooms.ask()
    await rooms.pass_time(29.9)
    assert len(await rooms.kept()) == 1
    await rooms.pass_time(0.2)
    (_, before), (type_, said) = await rooms.kept()
    assert (type_, said) == ("approval.request", before | {"reminder": True})
    assert "reminder" not in rooms.approvals.open()[0][0]
    await rooms.pass_time(10)
    assert len(await rooms.kept()) == 2
    assert (await rooms.row(first))["reminded"] == 1


async def test_questions_are_reminded_of_too(rooms: Rooms) -> None:
    await rooms.question(timeout_s=3600.0)
    await rooms.pass_time(1800)
    assert [said.get("reminder") for _, said in await rooms.kept()] == [None, True]


@pytest.mark.parametrize("timeout_s", [45.9, 30.0, 4.0])
async def test_no_reminder_with_little_time_left(rooms: Rooms, timeout_s: float) -> None:
    await rooms.ask(timeout_s=timeout_s)
    await rooms.pass_time(timeout_s / 2)
    assert len([said for type_, said in await rooms.kept() if type_ == "approval.request"]) == 1


async def test_no_reminder_of_what_has_an_outcome_or_waits(rooms: Rooms) -> None:
    first = await rooms.ask("one")
    await rooms.ask("two")
    await rooms.pass_time(10)
    await rooms.respond(first)
    await rooms.pass_time(3)
    third = await rooms.ask("three", timeout_s=30.0)
    await rooms.pass_time(18)
    kept = await rooms.kept()
    assert [said["summary"] for _, said in kept if said.get("reminder")] == ["two"]
    assert (await rooms.row(third))["state"] == "waiting"


async def test_what_opens_after_half_time_is_not_kept_twice_for_it(rooms: Rooms) -> None:
    first = await rooms.ask("one")
    await rooms.ask("two")
    await rooms.pass_time(29)
    await rooms.respond(first)
    await rooms.pass_time(2)
    kept = await rooms.kept()
    assert [(said["state"], said.get("reminder")) for _, said in kept if said.get("summary") == "two"] == [
        ("waiting", None), ("open", None), ("open", True),
    ]  # fmt: skip


# trouble with storing


async def test_when_it_cannot_be_stored_that_an_answer_is_given_nothing_is_sent(rooms: Rooms) -> None:
    first = await rooms.ask()
    with closing(await rooms.lock_disk()), pytest.raises(StorageFailed):
        await rooms.respond(first, key="k")
    assert rooms.agent.calls == []
    assert (await rooms.respond(first, key="k"))["outcome"] == "allowed"
