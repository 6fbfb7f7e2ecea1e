"""How much is asked, shown and kept, and whom it wakes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import orjson
import pytest

from app.approvals.ask import MAX_TEXT, MAX_TOOL, Ask
from app.approvals.errors import ApprovalClosed, ApprovalUnknown, ApprovalWaiting
from app.approvals.register import MAX_ALL, MAX_OF_TURN
from app.delivery.keep import MAX_BODY
from app.outbox import retention, wakes
from app.outbox.wakes import Overdue, Unseen
from app.push import store as push
from app.push.notice import of_frames
from tests.approvals.rooms import Agent, Rooms

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


async def test_what_no_agent_should_ask_can_still_be_shown_and_answered(rooms: Rooms) -> None:
    id = await rooms.ask("x", tool="y" * 400_000, choices=("", "z" * 2000))
    (said,) = rooms.approvals.open()[0]
    assert (said["tool"], said["choices"]) == ("y" * MAX_TOOL, ["once", "deny"])
    assert (await rooms.respond(id, "deny"))["outcome"] == "denied"
    timeless = await rooms.ask("x", timeout_s=math.nan)
    await rooms.pass_time(0)
    assert (await rooms.outcome(timeless))["outcome"] == "expired"


async def test_what_devices_are_told_at_once_fits_into_a_frame(rooms: Rooms) -> None:
    for n in range(MAX_ALL):
        await rooms.ask("x" * 20_000, description="y" * 20_000, wait=False, lane=f"s{n}", turn_id=f"t{n}")
    await rooms.quiet()
    assert 1 < len(rooms.approvals.open()[0]) < MAX_ALL
    assert len(orjson.dumps(rooms.approvals.open())) < 2 * 1024 * 1024


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
