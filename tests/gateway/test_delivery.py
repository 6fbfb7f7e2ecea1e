"""Kept frames over real sockets: void numbers, retention, supersession, older clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.clock import ManualClock
from app.delivery.drafts import Draft
from app.delivery.errors import DeviceUnknown
from app.delivery.messages import OPERATOR
from app.gateway.limits import Limits
from app.outbox import retention, store
from tests.phone import OLDER, Phone
from tests.relay import RunningRelay, running, settings_for


async def send(relay: RunningRelay, *texts: str, **fields: Any) -> list[str]:
    """Returns message ids."""
    drafts = [Draft(text, **fields) for text in texts]
    return [(await relay.relay.messages.send(draft, sender=OPERATOR))["message_id"] for draft in drafts]


async def back(relay: RunningRelay, phone: Phone, after: int | None = None, **fields: Any) -> Phone:
    place = None if after is None else {"epoch": phone.auth["epoch"], "after": after}
    return await relay.connect(session_token=phone.token, resume=place, **fields)


async def until_synced(phone: Phone) -> list[tuple[str, int | None]]:
    seen = []
    while (frame := await phone.next()).type != "synced":
        seen.append((frame.type, frame.seq))
    return seen


async def acked(relay: RunningRelay, phone: Phone) -> int:
    await relay.relay.acks.flush()
    box = await relay.relay.db.read(lambda tx: store.mailbox(tx, str(phone.auth["device_id"])))
    assert box is not None
    return box.acked


async def test_a_run_of_taken_back_numbers_is_one_void_frame_and_acknowledged_like_one(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.until("synced")
    await phone.hang_up()
    ids = await send(relay, "1", "2", "3", "4", "5")
    for id in ids[1:4]:
        await relay.relay.messages.cancel(id)
    phone = await back(relay, phone, 0)
    first, void, last = await phone.next(), await phone.next(), await phone.next()
    assert (first.type, first.seq, first.payload["text"]) == ("message", 1, "1")
    assert (void.channel, void.type, void.seq) == ("system", "void", 4)
    assert void.payload == {"from": 2, "to": 4, "reason": "cancelled"}
    assert (last.type, last.seq) == ("message", 5)
    await phone.ack(4)
    await phone.ping()
    assert await acked(relay, phone) == 4


async def test_what_expired_while_the_phone_was_away_is_not_shown(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay:
        phone = await relay.connect()
        await phone.until("synced")
        await phone.hang_up()
        await send(relay, "short", ttl_s=60)
        await send(relay, "long")
        clock.advance(61)
        phone = await back(relay, phone, 0)
        void, message = await phone.next(), await phone.next()
        assert (void.type, void.payload) == ("void", {"from": 1, "to": 1, "reason": "expired"})
        assert message.payload["text"] == "long"


async def test_a_message_that_expired_unseen_is_never_said_to_have_arrived(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay:
        phone = await relay.connect()
        await phone.until("synced")
        (seen,) = await send(relay, "seen", ttl_s=60)
        await phone.until("message")
        await phone.ack(1)
        await phone.ping()
        await phone.hang_up()
        (unseen,) = await send(relay, "unseen", ttl_s=60)
        clock.advance(61)
        phone = await back(relay, phone, 0)
        void = await phone.until("void")
        await phone.ack(void.seq or 0)
        await phone.ping()
        await relay.relay.acks.flush()
        states = [(await relay.relay.messages.look(id)).receipts[0] for id in (seen, unseen)]
        assert [(r.state, r.reason) for r in states] == [("acked", None), ("void", "expired")]


async def test_a_session_without_the_grant_is_shown_nothing(relay: RunningRelay) -> None:
    offer = await relay.relay.pairing.mint(grants={"terminal": None})
    phone = await relay.connect(pairing_code=offer.code)
    await phone.until("synced")
    await send(relay, "not for this one", device_id=phone.auth["device_id"])
    void = await phone.until("void")
    assert void.payload == {"from": 1, "to": 1, "reason": "not_granted"}


async def test_a_mailbox_whose_prefix_is_gone_says_so(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.until("synced")
    await phone.hang_up()
    await send(relay, *"abcde")
    device = phone.auth["device_id"]
    await relay.relay.db.write(lambda tx: retention.drop(tx, device, 3))
    again = await back(relay, phone, 0)
    reset = await again.next()
    assert (reset.type, reset.payload["reason"], reset.payload["after"]) == ("reset", "retention", 3)
    assert await until_synced(again) == [("message", 4), ("message", 5)]


async def test_a_prefix_that_goes_while_a_slow_reader_is_in_it_is_said_to_be_gone(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path), limits=Limits(stall_seconds=30)) as relay:
        phone = await relay.connect()
        await phone.until("synced")
        device = phone.auth["device_id"]
        phone.socket.transport.pause_reading()
        await send(relay, *("x" * 200_000 for _ in range(150)), device_id=device)
        await relay.relay.db.write(lambda tx: retention.drop(tx, device, 140))
        phone.socket.transport.resume_reading()
        await phone.until("message", lambda frame: frame.seq == 150)
        seen = [frame for frame in phone.frames if frame.type in ("message", "reset")]
        (cut,) = [n for n, frame in enumerate(seen) if frame.type == "reset"]
        assert seen[cut].payload == {"epoch": phone.auth["epoch"], "after": 140, "head": 150, "reason": "retention"}
        assert [frame.seq for frame in seen] == [*range(1, cut + 1), None, *range(141, 151)]


async def test_what_retention_dropped_cannot_be_asked_for_again(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.until("synced")
    await send(relay, *"abcde")
    await phone.until("message", lambda frame: frame.seq == 5)
    for floor, rest in ((3, [("reset", None), ("message", 4), ("message", 5)]), (5, [("reset", None)])):
        await relay.relay.db.write(lambda tx, floor=floor: retention.drop(tx, phone.auth["device_id"], floor))  # type: ignore[misc]
        await phone.send("system", "sync", after=0)
        assert await until_synced(phone) == rest
        assert phone.frames[phone.read - 1].payload["head"] == 5


async def test_a_storm_of_supersessions_loses_and_reorders_nothing(relay: RunningRelay) -> None:
    """Each socket of the instance is replaced at once by the next, while messages keep coming."""
    phone = await relay.connect(instance="tab")
    device, got, last = phone.auth["device_id"], [], 0
    sending = asyncio.ensure_future(send(relay, *map(str, range(200)), device_id=device))
    while last < 200:
        newer = await back(relay, phone, last, instance="tab")
        for _ in range(7):
            frame = await newer.until("message")
            assert frame.seq == last + 1
            got.append(frame.payload["text"])
            last = frame.seq or 0
            if last == 200:
                break
        await newer.ack(last)
        phone = newer
    assert got == [str(n) for n in range(200)]
    await sending
    await phone.ping()
    assert await acked(relay, phone) == 200


async def test_an_older_link_of_an_instance_is_sent_nothing_more(relay: RunningRelay) -> None:
    """Also where its socket does not notice the end: the generation in the database stops its pump."""
    phone = await relay.connect(instance="tab")
    await phone.until("synced")
    peer = relay.relay.hub.of_device(phone.auth["device_id"])[0]
    await relay.relay.db.write(lambda tx: store.raise_generation(tx, phone.auth["device_id"], "tab"))
    await send(relay, "not for this link")
    peer.ring()
    await phone.ping()
    assert "message" not in [frame.type for frame in phone.frames]


async def test_an_ack_on_the_older_link_still_counts(relay: RunningRelay) -> None:
    phone = await relay.connect(instance="tab")
    await send(relay, "hello")
    await phone.until("message")
    await relay.relay.db.write(lambda tx: store.raise_generation(tx, phone.auth["device_id"], "tab"))
    await phone.ack(1)
    await phone.ping()
    assert await acked(relay, phone) == 1


async def test_receipts_follow_a_message_to_the_phone(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.until("synced")
    (id,) = await send(relay, "hello")

    async def state() -> str:
        await relay.relay.acks.flush()
        return (await relay.relay.messages.look(id)).receipts[0].state

    await phone.until("message")
    await phone.ping()
    assert await state() == "sent"
    await phone.ack(1)
    await phone.ping()
    assert await state() == "acked"


# clients that cannot acknowledge


async def older(relay: RunningRelay, **fields: Any) -> Phone:
    return await relay.connect(supports=OLDER, **fields)


async def subscribe(phone: Phone) -> list[str]:
    """Returns the texts of the backlog."""
    await phone.send("proactive", "proactive.subscribe")
    await phone.until("proactive.subscribed")
    texts = []
    while (frame := await phone.next()).type != "proactive.backlog.complete":
        if frame.type == "phone.message":
            assert frame.payload["queued_delivery"] is True
            assert frame.seq is None
            texts.append(frame.payload["text"])
    assert frame.payload["count"] == len(texts)
    return texts


async def pong(phone: Phone) -> None:
    """As the Android app does: its own clock, and no id of ours."""
    await phone.until("ping")
    await phone.send("system", "pong", {"ts": 1}, id="own")


async def test_an_older_client_confirms_by_answering_a_ping(relay: RunningRelay) -> None:
    phone = await older(relay)
    assert await subscribe(phone) == []
    await send(relay, "one", "two")
    assert (await phone.until("phone.message")).payload["text"] == "one"
    assert await acked(relay, phone) == 0
    await pong(phone)
    await phone.ping()
    assert await acked(relay, phone) >= 1
    again = await older(relay, session_token=phone.token)
    assert await subscribe(again) in ([], ["two"])


async def test_what_an_older_client_never_answered_for_comes_again(relay: RunningRelay) -> None:
    phone = await older(relay)
    await subscribe(phone)
    await send(relay, "one", "two")
    await phone.until("phone.message", lambda frame: frame.payload["text"] == "two")
    await phone.hang_up()
    again = await older(relay, session_token=phone.token)
    assert await subscribe(again) == ["one", "two"]


async def test_an_older_client_gets_messages_only(relay: RunningRelay) -> None:
    phone = await older(relay)
    await subscribe(phone)
    room = relay.relay
    assert await room.db.read(lambda tx: store.listening(tx, "turn")) == {}
    assert await room.db.read(lambda tx: store.listening(tx, "message")) == {phone.auth["device_id"]: 0}


async def test_the_socket_that_subscribed_last_gets_them(relay: RunningRelay) -> None:
    one = await older(relay)
    two = await older(relay, session_token=one.token)
    await subscribe(one)
    await subscribe(two)
    await send(relay, "hello")
    assert (await two.until("phone.message")).payload["text"] == "hello"
    await one.ping()
    assert "phone.message" not in [frame.type for frame in one.frames]


async def test_unsubscribed_means_kept(relay: RunningRelay) -> None:
    phone = await older(relay)
    await subscribe(phone)
    await phone.send("proactive", "proactive.unsubscribe")
    await phone.ping()
    await send(relay, "later")
    await phone.ping()
    assert "phone.message" not in [frame.type for frame in phone.frames]
    assert await subscribe(phone) == ["later"]


async def test_a_slow_reader_gets_everything_once_it_reads_again(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path), limits=Limits(stall_seconds=30)) as relay:
        phone = await relay.connect()
        await phone.until("synced")
        phone.socket.transport.pause_reading()
        await send(relay, *("x" * 50_000 for _ in range(100)), device_id=phone.auth["device_id"])
        phone.socket.transport.resume_reading()
        assert [(await phone.until("message")).seq for _ in range(100)] == list(range(1, 101))


async def test_what_is_kept_while_a_link_is_admitted_reaches_it(relay: RunningRelay) -> None:
    """A link whose mailbox had nothing new does not look again, so nothing may slip in between."""
    phone = await relay.connect()
    await phone.until("synced")
    got: list[str] = []
    sent: list[str] = []
    for round_ in range(40):
        texts = [f"{round_}-{n}" for n in range(3)]
        sent += texts
        sending = asyncio.ensure_future(send(relay, *texts, device_id=phone.auth["device_id"]))
        newer = await back(relay, phone, len(got), instance="tab")
        while len(got) < len(sent):
            got.append((await newer.until("message")).payload["text"])
        await sending
        await newer.hang_up()
    assert got == sent


async def test_nobody_waits_for_a_revoked_phone(relay: RunningRelay) -> None:
    phone, other = await relay.connect(), await relay.connect()
    (id,) = await send(relay, "hello")
    peer = relay.relay.hub.of_device(phone.auth["device_id"])[0]
    await relay.relay.sessions.revoke(peer.session_id[:8], actor="operator")
    await other.until("message")
    await other.ack(1)
    await other.ping()
    await relay.relay.acks.flush()
    found = (await relay.relay.messages.look(id)).receipts
    assert {r.device_id: (r.state, r.reason) for r in found} == {
        phone.auth["device_id"]: ("void", "revoked"),
        other.auth["device_id"]: ("acked", None),
    }
    with pytest.raises(DeviceUnknown):
        await send(relay, "to nobody", device_id=phone.auth["device_id"])
