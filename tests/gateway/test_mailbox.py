from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

from app.delivery.keep import keep
from app.gateway.limits import Limits
from app.outbox import store
from tests.gateway.held import held_writer
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for

_number = itertools.count(1)


async def put(relay: RunningRelay, count: int = 1, *, devices: list[str] | None = None, size: int = 1) -> list[str]:
    """Keep frames as a room would; returns their ids."""
    room, ids = relay.relay, [f"m{next(_number)}" for _ in range(count)]

    def work(tx: Any) -> None:
        for id in ids:
            payload = {"id": id, "text": "x" * size}
            keep(
                tx, room.hub.ring, devices, id=id, channel="chat", type="turn.completed", kind="turn",
                payload=payload, now=room.clock.now(),
            )  # fmt: skip

    await room.db.write(work)
    return ids


async def kept(phone: Phone, count: int) -> list[tuple[str | None, int | None]]:
    frames = [await phone.until("turn.completed") for _ in range(count)]
    assert [f.payload["id"] for f in frames] == [f.id for f in frames]
    return [(frame.id, frame.seq) for frame in frames]


async def back(relay: RunningRelay, phone: Phone, after: int | None, **resume: Any) -> Phone:
    place = None if after is None else {"epoch": phone.auth["epoch"], "after": after} | resume
    return await relay.connect(session_token=phone.token, resume=place)


async def test_what_was_missed_comes_in_order_then_synced_then_what_is_new(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.until("synced")
    await phone.hang_up()
    ids = await put(relay, 150)
    phone = await back(relay, phone, 0)
    assert phone.auth["head"] == 150
    assert await kept(phone, 150) == [(id, seq) for seq, id in enumerate(ids, 1)]
    synced = await phone.next()
    assert (synced.type, synced.payload) == ("synced", {"epoch": phone.auth["epoch"], "head": 150})
    more = await put(relay, 2)
    assert await kept(phone, 2) == [(more[0], 151), (more[1], 152)]


async def test_an_ack_is_remembered_and_resume_is_one(relay: RunningRelay) -> None:
    phone = await relay.connect()
    ids = await put(relay, 5)
    await kept(phone, 5)
    await phone.ack(3)
    await phone.ping()
    again = await back(relay, phone, None)
    assert await kept(again, 2) == [(ids[3], 4), (ids[4], 5)]
    third = await back(relay, phone, 4)
    assert await kept(third, 1) == [(ids[4], 5)]
    await relay.relay.drain()
    box = await relay.relay.db.read(lambda tx: store.mailbox(tx, str(phone.auth["device_id"])))
    assert box is not None
    assert box.acked == 4


async def test_an_ack_counts_while_it_is_being_stored(relay: RunningRelay) -> None:
    phone = await relay.connect()
    ids = await put(relay, 3)
    await kept(phone, 3)
    async with held_writer(relay):
        await phone.ack(2)
        await phone.ping()
        storing = relay.relay.tasks.start(relay.relay.gateway._acks.flush(), "acks")
        again = await back(relay, phone, None)
        assert await kept(again, 1) == [(ids[2], 3)]
    await storing


async def test_acks_that_make_no_sense_change_nothing(relay: RunningRelay) -> None:
    phone = await relay.connect()
    ids = await put(relay, 2)
    await kept(phone, 2)
    await phone.send("system", "ack", epoch="another", seq=2)
    await phone.ack(1)
    await phone.ack(99)  # clamped to what was sent
    third = await put(relay)
    await kept(phone, 1)
    await phone.ping()
    again = await back(relay, phone, None)
    assert await kept(again, 1) == [(third[0], 3)]
    assert ids


async def test_sync_sends_again_from_where_it_is_told(relay: RunningRelay) -> None:
    phone = await relay.connect()
    ids = await put(relay, 3)
    await kept(phone, 3)
    await phone.send("system", "sync", after=1)
    assert await kept(phone, 2) == [(ids[1], 2), (ids[2], 3)]
    assert (await phone.until("synced")).payload["head"] == 3


async def test_a_position_the_mailbox_does_not_know_is_reset(relay: RunningRelay) -> None:
    phone = await relay.connect()
    ids = await put(relay, 3)
    await kept(phone, 3)
    await phone.ack(2)
    await phone.ping()

    ahead = await back(relay, phone, 9)
    reset = await ahead.next()
    assert (reset.type, reset.payload["reason"], reset.payload["after"]) == ("reset", "rolled_back", 0)
    assert await kept(ahead, 3) == [(id, seq) for seq, id in enumerate(ids, 1)]  # an ack may be another instance's

    foreign = await relay.connect(session_token=phone.token, resume={"epoch": "other", "after": 3})
    assert (await foreign.next()).payload["reason"] == "epoch_changed"

    other = await back(relay, phone, 3, id="not-what-was-3")
    assert (await other.next()).payload["reason"] == "rolled_back"

    same = await back(relay, phone, 3, id=ids[2])
    assert (await same.next()).type == "synced"


async def test_several_instances_each_get_everything_and_may_resume_below_an_ack(relay: RunningRelay) -> None:
    one = await relay.connect(instance="one")
    two = await relay.connect(session_token=one.token, instance="two")
    ids = await put(relay, 2)
    assert await kept(one, 2) == await kept(two, 2)
    await one.ack(2)
    await one.ping()
    below = await relay.connect(
        session_token=one.token, instance="two", resume={"epoch": one.auth["epoch"], "after": 0}
    )
    assert await kept(below, 2) == [(ids[0], 1), (ids[1], 2)]


async def test_only_devices_that_acknowledge_are_kept_for(relay: RunningRelay) -> None:
    older = await relay.connect(supports={"typed_stream_events": True})
    ours = await relay.connect()
    await put(relay)
    await kept(ours, 1)
    await older.ping()
    assert [frame.type for frame in older.frames] == ["auth.ok", "pong"]
    box = await relay.relay.db.read(lambda tx: store.mailbox(tx, str(older.auth["device_id"])))
    assert box is not None
    assert box.head == 0


async def test_a_restart_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path)) as relay:
        phone = await relay.connect()
        ids = await put(relay, 4)
        await kept(phone, 4)
        await phone.ack(2)
        await phone.ping()
    drained = [frame for frame in phone.frames if frame.type == "drain"]
    assert phone.socket.close_code in (1012, 1006, 1000)
    async with running(settings_for(tmp_path)) as relay:
        again = await relay.connect(session_token=phone.token)
        assert await kept(again, 2) == [(ids[2], 3), (ids[3], 4)]
        assert again.auth["epoch"] == phone.auth["epoch"]
    assert drained == []  # it had hung up before


async def test_a_stopped_reader_is_evicted_keeps_its_frames_and_costs_little(tmp_path: Path) -> None:
    """Its kept frames stay in the database: the pump reads no more than the queue has room for."""
    async with running(settings_for(tmp_path), limits=Limits(stall_seconds=0.5, close_seconds=0.1)) as relay:
        phone = await relay.connect()
        await phone.until("synced")
        phone.socket.transport.pause_reading()
        ids = await put(relay, 600, size=20_000)  # 12 MB: more than any socket buffer takes
        peer = relay.relay.hub.of_device(phone.auth["device_id"])[0]
        gone = asyncio.Event()
        peer.when_closed(lambda clean: gone.set())
        async with asyncio.timeout(10):
            await gone.wait()
        assert peer.outbound._bytes == 0  # type: ignore[attr-defined]
        assert len(relay.relay.hub) == 0
        again = await back(relay, phone, 0)
        assert [seq for _, seq in await kept(again, 600)] == list(range(1, 601))
        assert ids


async def test_a_client_that_never_reads_its_answers_stops_being_read(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path), limits=Limits(stall_seconds=0.5, close_seconds=0.1)) as relay:
        phone = await relay.connect()
        other = await relay.connect()
        await phone.until("synced")
        peer = relay.relay.hub.of_device(phone.auth["device_id"])[0]
        gone = asyncio.Event()
        peer.when_closed(lambda clean: gone.set())
        phone.socket.transport.pause_reading()
        filler = {"ts": "x" * 100_000}

        async def flood() -> None:
            while True:
                await phone.send("system", "ping", filler)

        flooding = asyncio.ensure_future(flood())
        async with asyncio.timeout(10):
            await gone.wait()
        assert peer.outbound._bytes <= 1_000_000  # type: ignore[attr-defined]
        flooding.cancel()
        await other.ping()
