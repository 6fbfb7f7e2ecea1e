"""Who gets a message, and for how long; with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.clock import ManualClock
from app.delivery.drafts import Draft
from app.delivery.errors import NobodyListens
from app.delivery.messages import OPERATOR
from tests import older
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for

Sent = dict[str, dict[str, tuple[str, str | None]]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def relay(tmp_path: Path, clock: ManualClock) -> AsyncIterator[RunningRelay]:
    async with running(settings_for(tmp_path), clock=clock) as relay:
        yield relay


def id_of(phone: Phone) -> str:
    return str(phone.auth["device_id"])


async def send(relay: RunningRelay, draft: Draft, sender: str = OPERATOR) -> tuple[str, list[str]]:
    """(message_id, the devices it is kept for)."""
    sent = await relay.relay.messages.send(draft, sender=sender)
    return sent["message_id"], sorted(one["device_id"] for one in sent["deliveries"])


async def states(relay: RunningRelay, message_id: str) -> dict[str, tuple[str, str | None]]:
    found = await relay.relay.messages.look(message_id)
    return {receipt.device_id: (receipt.state, receipt.reason) for receipt in found.receipts}


async def test_devices_that_take_messages_are_those_that_acknowledge_or_have_subscribed(relay: RunningRelay) -> None:
    ours, subscribed, desktop = await relay.connect(), await older.connect(relay), await older.connect(relay)
    await older.subscribe(subscribed)
    await desktop.ping()
    _, devices = await send(relay, Draft("x"))
    assert devices == sorted([id_of(ours), id_of(subscribed)])
    _, devices = await send(relay, Draft("x"), sender=id_of(ours))
    assert devices == [id_of(subscribed)]


async def test_one_that_is_named_gets_it_though_it_has_not_subscribed_yet(relay: RunningRelay) -> None:
    phone = await older.connect(relay)
    with pytest.raises(NobodyListens):
        await send(relay, Draft("x"))
    await send(relay, Draft("for you", device_id=id_of(phone)))
    assert [frame.payload["text"] for frame in await older.subscribe(phone)] == ["for you"]


async def test_nobody_is_left_when_the_only_device_sends(relay: RunningRelay) -> None:
    phone = await relay.connect()
    with pytest.raises(NobodyListens):
        await send(relay, Draft("x"), sender=id_of(phone))


async def test_what_has_expired_is_void_and_what_was_confirmed_before_is_not(
    relay: RunningRelay, clock: ManualClock
) -> None:
    here, away = await relay.connect(), await relay.connect()
    await away.hang_up()
    message_id, _ = await send(relay, Draft("soon gone", ttl_s=60))
    await here.until("message")
    await here.ack(1)
    await here.ping()
    clock.advance(61)
    assert await states(relay, message_id) == {id_of(here): ("acked", None), id_of(away): ("void", "expired")}
    back = await relay.connect(session_token=away.token)
    void = await back.next()
    assert (void.type, void.payload) == ("void", {"from": 1, "to": 1, "reason": "expired"})
    assert await relay.relay.messages.waiting(10) == []


async def test_what_waits_is_listed_oldest_first_and_once_for_all_devices(
    relay: RunningRelay, clock: ManualClock
) -> None:
    phones = [await relay.connect() for _ in range(3)]
    for phone in phones:
        await phone.hang_up()
    ids = []
    for text in ("one", "two", "three"):
        ids.append((await send(relay, Draft(text)))[0])
        clock.advance(1)
    assert [one.id for one in await relay.relay.messages.waiting(10)] == ids
    assert [one.id for one in await relay.relay.messages.waiting(2)] == ids[:2]
    back = await relay.connect(session_token=phones[0].token)
    await back.until("message", lambda frame: frame.seq == 3)
    await back.ack(3)
    await back.ping()
    assert [one.id for one in await relay.relay.messages.waiting(10)] == ids  # two devices have not
    assert await relay.relay.messages.cancel_waiting() == 3
    assert set((await states(relay, ids[0])).values()) == {("acked", None), ("void", "cancelled")}
