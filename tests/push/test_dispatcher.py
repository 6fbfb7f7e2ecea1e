"""When a push goes out, to whom, and how often."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import text

from app.outbox import messages, wakes
from tests.push.conftest import REVOKE, Desk, open_desk

ONE = [("a", "New message")]


async def test_a_push_is_due_after_the_grace_and_goes_out_once(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    assert await desk.after(4.9) == []
    assert await desk.after(0.1) == ONE
    assert await desk.after(86400) == []
    assert (await desk.box("a"))["woken"] == 1


async def test_one_push_per_burst(desk: Desk) -> None:
    await desk.phone("a")
    for kind in ("message", "cron", "message", "turn", "approval"):
        await desk.keep("a", kind=kind)
        desk.clock.advance(1)
    assert [said for _, said in await desk.after(0)] == ["Your approval is needed, and 4 more"]
    await desk.keep("a")
    await desk.keep("a")
    assert await desk.after(5) == [("a", "2 new messages")]


async def test_what_does_not_wake_is_not_pushed_about(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a", wakes=False)
    assert await desk.after(60) == []


async def test_an_acknowledgement_takes_it_back_and_a_partial_one_moves_it(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    desk.clock.advance(2)
    await desk.ack("a", 1)
    assert await desk.after(60) == []
    await desk.keep("a")
    desk.clock.advance(3)
    await desk.keep("a")
    desk.clock.advance(1)
    await desk.ack("a", 2)
    assert await desk.due_in("a") == 4
    assert await desk.after(3.9) == []
    assert await desk.after(0.1) == ONE


async def test_every_target_of_the_device_and_nobody_elses(desk: Desk) -> None:
    await desk.phone("a")
    await desk.register("a", "second-topic")
    await desk.phone("b")
    await desk.keep("a")
    assert sorted(await desk.after(5)) == [*ONE, ("second-topic", "New message")]


async def test_what_expired_or_was_taken_back_or_read_meanwhile_is_not_pushed_about(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a", expires_at=desk.clock.now() + 3)
    id = await desk.keep("a")
    await desk.db.write(lambda tx: messages.void(tx, id, "cancelled"))
    assert await desk.after(5) == []
    assert await desk.due_in("a") is None


async def test_without_a_target_nothing_is_lost_until_there_is_one(desk: Desk) -> None:
    await desk.phone("a", target=False)
    await desk.keep("a")
    await desk.keep("a")
    assert await desk.after(5) == []
    assert await desk.after(3600) == []
    await desk.register("a")
    assert await desk.after(0) == [("a", "2 new messages")]
    await desk.register("a")  # again, as at each connect
    assert await desk.after(60) == []


async def test_a_device_whose_session_has_ended_is_not_told(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    await desk.db.write(lambda tx: tx.execute(REVOKE, {"id": "a", "now": 1}).close())
    assert await desk.after(5) == []


async def test_an_endpoint_belongs_to_the_device_that_registered_it_last(desk: Desk) -> None:
    await desk.phone("a")
    await desk.phone("b", target=False)
    await desk.register("b", "topic-of-a")
    await desk.keep("a", "b")
    assert len(await desk.after(5)) == 1
    assert [t.retired for t in await desk.targets("a")] == ["moved"]
    await desk.register("a")
    await desk.keep("a", "b")
    assert len(await desk.after(5)) == 1
    assert [t.retired for t in await desk.targets("b")] == ["moved"]


async def test_content_is_said_only_where_the_owner_wants_it(tmp_path: Path) -> None:
    async with open_desk(tmp_path, "full") as desk:
        await desk.phone("a")
        await desk.keep("a")
        assert await desk.after(5) == [("a", "secret text")]
        assert desk.service.taken[0]["title"] == "secret title"


async def test_a_device_that_may_not_read_it_is_not_told(tmp_path: Path) -> None:
    async with open_desk(tmp_path, "full") as desk:
        await desk.phone("a")

        async def told(**grants: float | None) -> bool:
            change = text("UPDATE sessions SET grants = :grants WHERE device_id = 'a'")
            await desk.db.write(lambda tx: tx.execute(change, {"grants": json.dumps(grants)}).close())
            await desk.keep("a", kind="approval", body={"summary": "rm secret"})
            return await desk.after(5) == [("a", "rm secret")]

        assert not await told(terminal=None)
        assert await told(chat=None)
        assert await told(chat=desk.clock.now() + 6)
        assert not await told(chat=desk.clock.now() + 5)


# presence


async def test_presence_of_that_very_device_delays_its_wake(desk: Desk) -> None:
    await desk.phone("a")
    await desk.phone("b")
    now = desk.clock.now()
    await desk.db.write(lambda tx: wakes.set_foreground(tx, "a", now + 60, now))
    await desk.keep("a", "b")
    assert await desk.after(5) == [("b", "New message")]
    assert await desk.after(54.9) == []
    assert await desk.after(0.1) == ONE


async def test_the_end_of_presence_makes_what_waited_due(desk: Desk) -> None:
    await desk.phone("a")
    now = desk.clock.now()
    await desk.db.write(lambda tx: wakes.set_foreground(tx, "a", now + 60, now))
    await desk.keep("a")
    assert await desk.after(10) == []
    await desk.db.write(lambda tx: wakes.set_foreground(tx, "a", None, desk.clock.now()))
    assert await desk.after(0) == ONE


# wishes


async def test_kinds_that_are_switched_off_and_turns_that_were_short(desk: Desk) -> None:
    await desk.phone("a")
    await desk.want("a", kinds={"cron": False})
    await desk.keep("a", kind="cron")
    await desk.keep("a", kind="turn", body={"duration_s": 9.9})
    assert await desk.after(5) == []
    await desk.keep("a", kind="turn", body={"duration_s": 10})
    await desk.keep("a", kind="cron")
    assert await desk.after(5) == [("a", "Your agent has finished")]
    await desk.want("a", min_turn_s=0)
    await desk.keep("a", kind="turn", body={"duration_s": 0.2})
    assert await desk.after(5) == [("a", "Your agent has finished")]


async def test_wishes_that_this_host_cannot_read_are_as_good_as_none(desk: Desk) -> None:
    """Zones differ between hosts, and a database moves; the device must find its way in to say them again."""
    await desk.phone("a")
    quiet = '{"quiet": {"from": "00:00", "to": "23:59", "zone": "Europe/Elsewhere"}}'
    prefs = text("INSERT INTO push_prefs (device_id, prefs) VALUES ('a', :prefs)")
    await desk.db.write(lambda tx: tx.execute(prefs, {"prefs": quiet}).close())
    await desk.keep("a")
    assert await desk.after(5) == ONE


async def test_quiet_hours_hold_back_until_they_end_but_for_what_may_wake(desk: Desk) -> None:
    await desk.phone("a")
    local = 1_800_000_000  # 2027-01-15 09:00 in Berlin
    await desk.want("a", quiet={"from": "08:30", "to": "09:30", "zone": "Europe/Berlin", "except": ["approval"]})
    assert desk.clock.now() == local
    await desk.keep("a")
    await desk.keep("a", kind="cron")
    assert await desk.after(5) == []
    assert await desk.due_in("a") == 1795
    await desk.keep("a")
    assert await desk.after(1794.5) == []
    assert await desk.after(0.5) == [("a", "2 new messages, and 1 more")]
    await desk.want("a", quiet={"from": "08:30", "to": "08:29", "zone": "Europe/Berlin", "except": ["approval"]})
    await desk.keep("a")
    assert await desk.after(5) == []
    await desk.keep("a", kind="approval")  # does not wait with what waits, and takes it along
    assert await desk.after(5) == [("a", "Your approval is needed, and 1 more")]
