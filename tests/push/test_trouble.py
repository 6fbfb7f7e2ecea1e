"""What follows from what a provider says, from crashes, and from more than one dispatcher."""

from __future__ import annotations

import asyncio

import pytest

from app.outbox import messages, wakes
from app.push import store
from app.push.answers import outcome
from app.push.dispatcher import LEASE_S, Dispatcher
from app.tasks import Supervisor
from tests.contracts.services import Reply
from tests.push.conftest import Desk

ONE = [("a", "New message")]


async def test_trouble_that_passes_is_waited_out_longer_each_time(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    desk.service.replies = [Reply(500) for _ in range(12)]
    pauses: list[float] = []
    assert await desk.after(5) == []
    while len(pauses) < 12:
        due = await desk.due_in("a")
        assert due is not None
        pauses.append(due)
        if len(pauses) < 12:
            assert await desk.after(due) == []
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]
    assert (await desk.targets("a"))[0].failure == "service_failed"
    assert await desk.after(3600) == ONE
    assert (await desk.targets("a"))[0].failure is None
    await desk.keep("a")
    desk.service.replies = [Reply(500)]
    await desk.after(5)
    assert await desk.due_in("a") == 5


async def test_retry_after_is_kept_also_by_the_next_burst(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    desk.service.replies = [Reply(429, b"", {"retry-after": "600"})]
    assert await desk.after(5) == []
    assert await desk.due_in("a") == 600
    desk.clock.advance(10)
    await desk.ack("a", 1)
    await desk.keep("a")
    assert await desk.after(5) == []
    assert desk.service.requests == 1
    assert await desk.due_in("a") == 585
    assert await desk.after(585) == ONE


async def test_an_acknowledgement_during_the_pause_ends_it(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    desk.service.replies = [Reply(503)]
    await desk.after(5)
    await desk.ack("a", 1)
    assert await desk.after(3600) == []
    assert desk.service.requests == 1


async def test_only_the_target_that_failed_is_tried_again(desk: Desk) -> None:
    await desk.phone("a")
    await desk.register("a", "second-topic")
    await desk.keep("a")
    desk.service.replies = [Reply(500)]
    first = await desk.after(5)
    assert len(first) == 1
    second = await desk.after(5)
    assert {first[0][0], second[0][0]} == {"a", "second-topic"}
    assert await desk.after(3600) == []
    assert (await desk.box("a"))["woken"] == 1


async def test_a_target_that_fails_does_not_hold_up_the_others(desk: Desk) -> None:
    await desk.phone("a")
    desk.clock.advance(1)
    await desk.register("a", "second-topic")
    await desk.keep("a")
    send, desk.provider.send = desk.provider.send, _instead("topic-of-a", 403, desk)  # type: ignore[method-assign]
    assert await desk.after(5) == [("second-topic", "New message")]
    assert await desk.due_in("a") == 3600
    await desk.keep("a")
    assert await desk.after(5) == [("second-topic", "2 new messages")]
    assert await desk.due_in("a") == 3595
    desk.provider.send = send  # type: ignore[method-assign]
    assert await desk.after(3595) == [("a", "2 new messages")]
    assert await desk.due_in("a") is None


async def test_what_comes_while_a_push_fails_is_not_put_off_with_it(desk: Desk) -> None:
    await desk.phone("a")
    await desk.register("a", "second-topic")
    await desk.keep("a")
    fail = _instead("topic-of-a", 403, desk)

    async def send(target, notice, now):  # type: ignore[no-untyped-def]
        if notice.head == 1 and target.endpoint == "topic-of-a":
            await desk.keep("a")
        return await fail(target, notice, now)

    desk.provider.send = send  # type: ignore[method-assign]
    assert await desk.after(5) == [("second-topic", "New message")]
    assert await desk.due_in("a") == 5
    assert await desk.after(5) == [("second-topic", "2 new messages")]
    assert await desk.due_in("a") == 3595


async def test_a_refused_push_is_not_repeated_and_the_next_burst_tries_again(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    desk.service.replies = [Reply(400)]
    assert await desk.after(5) == []
    assert await desk.after(7200) == []
    await desk.keep("a")
    assert await desk.after(5) == [("a", "2 new messages")]


async def test_what_somebody_must_repair_is_tried_each_hour_and_after_a_start(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    desk.service.replies = [Reply(403), Reply(403)]
    assert await desk.after(5) == []
    assert await desk.due_in("a") == 3600
    assert await desk.after(3600) == []

    def start(tx: object) -> None:
        store.forgive(tx)  # type: ignore[arg-type]
        wakes.retry_now(tx, None, desk.clock.now())  # type: ignore[arg-type]

    await desk.db.write(start)
    assert await desk.after(0) == ONE


async def test_a_target_that_is_gone_is_retired_alone_and_lives_again_when_registered(desk: Desk) -> None:
    await desk.phone("a")
    desk.clock.advance(1)
    await desk.register("a", "second-topic")
    await desk.keep("a")
    gone, desk.provider.send = desk.provider.send, _instead("topic-of-a", 410, desk)  # type: ignore[method-assign]
    assert await desk.after(5) == [("second-topic", "New message")]
    assert [(t.retired, t.failure) for t in await desk.targets("a")] == [("gone", "gone"), (None, None)]
    desk.provider.send = gone  # type: ignore[method-assign]
    await desk.keep("a")
    assert await desk.after(5) == [("second-topic", "New message")]
    await desk.register("a")
    await desk.keep("a")
    assert len(await desk.after(5)) == 2
    assert [t.retired for t in await desk.targets("a")] == [None, None]


def _instead(topic: str, status: int, desk: Desk):  # type: ignore[no-untyped-def]
    """For one topic this answer, as the common table has it: ntfy itself never says that a topic is gone."""
    send = desk.provider.send

    async def instead(target, notice, now):  # type: ignore[no-untyped-def]
        return outcome(status, {}, status=status) if target.endpoint == topic else await send(target, notice, now)

    return instead


async def test_a_target_that_nobody_registers_any_more_ages_out(desk: Desk) -> None:
    await desk.phone("a")
    desk.clock.advance(store.STALE_S + 1)
    await desk.keep("a")
    assert await desk.after(5) == []
    assert [t.retired for t in await desk.targets("a")] == ["stale"]
    await desk.register("a")
    assert await desk.after(0) == ONE


async def test_a_device_has_so_many_targets_at_most(desk: Desk) -> None:
    await desk.phone("a", target=False)
    for n in range(store.MAX_TARGETS + 3):
        desk.clock.advance(1)
        await desk.register("a", f"topic-{n}")
    await desk.keep("a")
    assert sorted(topic for topic, _ in await desk.after(5)) == sorted(f"topic-{n}" for n in range(3, 11))


async def test_targets_that_come_back_count_like_new_ones_and_few_old_ones_are_remembered(desk: Desk) -> None:
    await desk.phone("a", target=False)
    for n in [*range(30), *range(10)]:
        desk.clock.advance(1)
        await desk.register("a", f"topic-{n}")
    found = await desk.targets("a")
    assert len([t for t in found if t.retired_at is None]) == store.MAX_TARGETS
    assert len(found) == 2 * store.MAX_TARGETS
    await desk.keep("a")
    assert sorted(topic for topic, _ in await desk.after(5)) == sorted(f"topic-{n}" for n in range(2, 10))


async def test_every_outcome_is_kept_the_last_hundred_of_each_device(desk: Desk) -> None:
    await desk.phone("a")
    await desk.phone("b")
    await desk.keep("b")
    desk.service.replies = [Reply(500, b'{"error":"out of order"}')]
    await desk.after(5)
    found = await desk.outcomes("b")
    assert [
        (o["verdict"], o["code"], o["status"], o["detail"], o["kind"], o["collapse"], o["head"]) for o in found
    ] == [("later", "service_failed", 500, "out of order", "message", "messages", 1)]
    for _ in range(103):
        await desk.keep("a")
        await desk.after(5)
    assert [o["head"] for o in await desk.outcomes("a")] == list(range(103, 3, -1))
    assert len(await desk.outcomes("b")) == 2


async def test_a_slow_provider_holds_up_its_own_device_only(desk: Desk) -> None:
    await desk.phone("a")
    await desk.phone("b")
    await desk.keep("a")
    desk.service.hang = asyncio.Event()
    desk.clock.advance(5)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(desk.dispatcher.once())
        await desk.service.asked.acquire()
        hanging, desk.service.hang = desk.service.hang, None
        await desk.keep("b")
        desk.clock.advance(5)
        second = group.create_task(desk.dispatcher.once())
        await desk.service.asked.acquire()
        assert [t["topic"] for t in desk.service.taken] == ["topic-of-b"]
        hanging.set()
    assert (first.result(), second.result()) == (1, 1)
    assert len(desk.service.taken) == 2


# several dispatchers, and crashes


async def test_many_dispatchers_on_one_database_send_one_push_per_device(desk: Desk) -> None:
    devices = [f"d{n:02}" for n in range(30)]
    for device in devices:
        await desk.phone(device)
    await desk.keep(*devices)
    desk.clock.advance(5)
    async with Supervisor() as tasks:
        others = [Dispatcher(desk.db, desk.clock, tasks, {"ntfy": desk.provider}, "relay-1", "none") for _ in range(3)]
        counts = await asyncio.gather(*(one.once() for one in [desk.dispatcher, *others]))
    assert sum(counts) == 30
    assert sorted(t["topic"] for t in desk.service.taken) == [f"topic-of-{device}" for device in devices]


async def test_a_lease_outlives_a_crash_and_then_somebody_else_pushes(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    desk.clock.advance(5)
    claimed = await desk.db.write(lambda tx: wakes.claim(tx, desk.clock.now(), LEASE_S, 8))  # and then it was killed
    assert [overdue.device_id for overdue in claimed] == ["a"]
    due = await desk.db.read(lambda tx: wakes.next_due(tx, desk.clock.now(), LEASE_S))
    assert due == desk.clock.now() + LEASE_S
    assert await desk.after(LEASE_S - 0.1) == []
    assert await desk.after(0.1) == ONE
    assert await desk.after(3600) == []


YEAR_S = 365 * 86400.0


@pytest.mark.parametrize("trouble", ["claimed", "waiting", "failed", "foreground"])
async def test_a_clock_that_ran_ahead_and_is_set_back_holds_up_no_push(desk: Desk, trouble: str) -> None:
    await desk.phone("a")
    desk.clock.advance(YEAR_S)
    await desk.register("a")
    await desk.keep("a")
    now = desk.clock.now()
    if trouble == "foreground":
        await desk.db.write(lambda tx: wakes.set_foreground(tx, "a", now + 60, now))
    elif trouble == "claimed":
        await desk.db.write(lambda tx: wakes.claim(tx, now + 5, LEASE_S, 8))
    elif trouble == "failed":
        desk.service.replies = [Reply(500)]
        await desk.after(5)
    desk.clock.advance(-YEAR_S)
    assert await desk.after(5) == ONE
    assert await desk.after(YEAR_S) == []


async def test_what_comes_while_a_push_is_on_its_way_gets_one_of_its_own(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    desk.service.hang = asyncio.Event()
    desk.clock.advance(5)
    async with asyncio.TaskGroup() as group:
        group.create_task(desk.dispatcher.once())
        await desk.service.asked.acquire()
        await desk.keep("a")
        desk.service.hang.set()
    desk.service.hang = None
    assert await desk.due_in("a") == 5
    assert await desk.after(5) == ONE
    assert len(desk.service.taken) == 2


async def test_the_dispatcher_looks_by_itself_and_at_once_when_it_is_rung(desk: Desk) -> None:
    await desk.phone("a")
    await desk.keep("a")
    async with Supervisor() as tasks:
        tasks.start(desk.dispatcher.forever(), "dispatcher")
        desk.clock.advance(5)
        desk.dispatcher.ring()
        async with asyncio.timeout(10):
            await desk.service.asked.acquire()
    assert [t["topic"] for t in desk.service.taken] == ["topic-of-a"]


async def test_receipts_say_that_a_push_went_out(desk: Desk) -> None:
    await desk.phone("a")
    await desk.phone("b", target=False)
    id = await desk.keep("a", "b")
    await desk.after(5)
    found = await desk.db.read(lambda tx: messages.receipts(tx, id, desk.clock.now()))
    assert {r.device_id: r.state for r in found} == {"a": "woken", "b": "kept"}
