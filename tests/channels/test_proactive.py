"""The channel of older clients: what they send, and what they get over sockets that come and go."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from app.clock import ManualClock
from app.delivery.drafts import Draft
from app.delivery.messages import OPERATOR
from tests import older
from tests.phone import Frame, Phone
from tests.relay import RunningRelay, running, settings_for


async def put(relay: RunningRelay, *texts: str, ttl_s: int | None = None) -> list[str]:
    messages = relay.relay.messages
    sent = [await messages.send(Draft(text, ttl_s=ttl_s), sender=OPERATOR) for text in texts]
    return [one["message_id"] for one in sent]


async def back(relay: RunningRelay, phone: Phone) -> Phone:
    await phone.hang_up()
    return await older.connect(relay, session_token=phone.token)


def texts(frames: list[Frame]) -> list[str]:
    return [frame.payload["text"] for frame in frames]


async def test_what_waits_comes_in_order_and_then_what_is_new(relay: RunningRelay) -> None:
    phone = await older.connect(relay)
    assert await older.subscribe(phone) == []
    phone = await back(relay, phone)
    await put(relay, "one", "two", "three")
    assert texts(await older.subscribe(phone)) == ["one", "two", "three"]
    await put(relay, "four")
    frame = await phone.until("phone.message")
    assert (frame.payload["text"], "queued_delivery" in frame.payload) == ("four", False)


async def test_nothing_is_sent_before_it_subscribes(relay: RunningRelay) -> None:
    phone = await older.connect(relay)
    await older.subscribe(phone)
    phone = await back(relay, phone)
    await put(relay, "one")
    await phone.ping()
    assert [frame.type for frame in phone.frames] == ["auth.ok", "pong"]


async def test_what_no_pong_confirmed_is_sent_again_and_the_rest_is_not(relay: RunningRelay) -> None:
    phone = await older.connect(relay)
    await older.subscribe(phone)
    await put(relay, "confirmed")
    await phone.until("phone.message")
    await older.confirm(phone)
    await put(relay, "unread")
    await phone.until("phone.message")
    for _ in range(3):  # it never answers the ping that asks
        phone = await back(relay, phone)
        assert texts(await older.subscribe(phone, answers=False)) == ["unread"]
    phone = await back(relay, phone)
    assert texts(await older.subscribe(phone)) == ["unread"]
    phone = await back(relay, phone)
    assert await older.subscribe(phone) == []


async def test_a_pong_confirms_what_was_written_before_its_ping_only(relay: RunningRelay) -> None:
    phone = await older.connect(relay)
    await older.subscribe(phone)
    await put(relay, "one")
    await phone.until("phone.message")
    ping = await phone.until("ping")
    await put(relay, "two")
    await phone.until("phone.message")
    await older.answer_ping(phone, ping)  # one question at a time: this one was about "one"
    await phone.ping()
    phone = await back(relay, phone)
    assert texts(await older.subscribe(phone)) == ["two"]


async def test_subscribing_again_on_the_same_socket_repeats_nothing(relay: RunningRelay) -> None:
    phone = await older.connect(relay)
    await older.subscribe(phone)
    await put(relay, "one")
    await phone.until("phone.message")
    ping = await phone.until("ping")
    assert await older.subscribe(phone) == []
    await phone.send("proactive", "proactive.unsubscribe", {})
    await phone.ping()
    await put(relay, "two")
    assert texts(await older.subscribe(phone, answers=False)) == ["two"]
    await older.answer_ping(phone, ping)
    await older.confirm(phone)  # which asks about "two"
    phone = await back(relay, phone)
    assert await older.subscribe(phone) == []


async def test_the_socket_that_asked_last_gets_them(relay: RunningRelay) -> None:
    """As the desktop programs do, all with one device id."""
    first = await older.connect(relay)
    await older.subscribe(first)
    second = await older.connect(relay, session_token=first.token)
    await older.subscribe(second)
    await put(relay, "one")
    assert (await second.until("phone.message")).payload["text"] == "one"
    await first.ping()
    assert "phone.message" not in [frame.type for frame in first.frames]


async def test_a_client_that_acknowledges_gets_them_as_messages(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.until("synced")
    await phone.send("proactive", "proactive.subscribe", {})
    assert (await phone.next()).type == "proactive.subscribed"
    await put(relay, "one")
    frame = await phone.next()
    assert (frame.channel, frame.type, frame.seq) == ("messages", "message", 1)


async def test_what_was_taken_back_or_has_expired_is_passed_over(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay:
        phone = await older.connect(relay)
        await older.subscribe(phone)
        phone = await back(relay, phone)
        await put(relay, "short-lived", ttl_s=60)
        (cancelled,) = await put(relay, "taken back")
        await put(relay, "stays")
        await relay.relay.messages.cancel(cancelled)
        clock.advance(61)
        assert texts(await older.subscribe(phone)) == ["stays"]
        found = await relay.relay.messages.look(cancelled)
        assert [(receipt.state, receipt.reason) for receipt in found.receipts] == [("void", "cancelled")]


async def test_a_restart_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path)) as relay:
        phone = await older.connect(relay)
        await older.subscribe(phone)
        await put(relay, "read")
        await phone.until("phone.message")
        await older.confirm(phone)
        await put(relay, "unread")
        await phone.until("phone.message")
    async with running(settings_for(tmp_path)) as relay:
        await put(relay, "meanwhile")
        phone = await older.connect(relay, session_token=phone.token)
        assert texts(await older.subscribe(phone)) == ["unread", "meanwhile"]


@pytest.mark.parametrize(
    ("type_", "payload", "code"),
    [
        ("phone.message", {"text": "spoof"}, "unknown_type"),
        ("proactive.reply", {"text": "  "}, "payload_invalid"),
        ("proactive.reply", {}, "payload_invalid"),
        ("proactive.reply", {"text": "x" * 300_000}, "message_too_big"),
        ("proactive.cancel", {"message_id": "nobody-knows"}, "message_unknown"),
        ("proactive.cancel", {}, "payload_invalid"),
    ],
)
async def test_what_is_refused(relay: RunningRelay, type_: str, payload: dict[str, str], code: str) -> None:
    phone = await older.connect(relay)
    answer = await phone.ask("proactive", type_, payload)
    assert (answer.channel, answer.type, answer.payload["code"]) == ("system", "error", code)
    async with httpx.AsyncClient(headers=relay.operator()) as http:
        assert (await http.get(f"{relay.url}/phone/replies")).json() == {"replies": []}


async def test_it_needs_the_chat_grant(relay: RunningRelay) -> None:
    code = (await relay.relay.pairing.mint(grants={"terminal": None})).code
    phone = await older.connect(relay, pairing_code=code)
    for type_ in ("proactive.subscribe", "proactive.unsubscribe", "proactive.reply", "proactive.cancel"):
        answer = await phone.ask("proactive", type_, {"text": "x", "message_id": "m"})
        assert answer.payload["code"] == "grant_missing"


async def test_a_reply_happens_once_per_key(relay: RunningRelay) -> None:
    phone = await older.connect(relay)
    said = {"text": "yes", "message_id": "r-1", "ts": 1}
    acks = [await phone.ask("proactive", "proactive.reply", said, id=f"f-{n}") for n in range(2)]
    acks.append(await phone.ask("proactive", "proactive.reply", said | {"ts": 2}))  # what it says is the same
    assert [ack.payload for ack in acks] == [acks[0].payload] * 3
    other = await phone.ask("proactive", "proactive.reply", said | {"text": "no"})
    assert other.payload["code"] == "id_reused"
    by_frame = [await phone.ask("proactive", "proactive.reply", {"text": "ok"}, id="same") for _ in range(2)]
    assert [ack.payload["client_msg_id"] for ack in by_frame] == ["same", "same"]
    async with httpx.AsyncClient(headers=relay.operator()) as http:
        found = (await http.get(f"{relay.url}/phone/replies")).json()["replies"]
    assert [one["text"] for one in found] == ["yes", "ok"]
