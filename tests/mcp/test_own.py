"""The relay's own tools: a message to the owner, notifications, devices."""

from __future__ import annotations

import json
from typing import Any

from mcp import Client

from app.delivery.messages import OPERATOR
from tests.bridge.phone_simulator import PhoneSimulator
from tests.mcp.conftest import code, texts
from tests.mcp.test_calls import INJECTION, inside
from tests.relay import RunningRelay


async def test_a_message_lands_in_the_mailbox_of_every_phone(relay: RunningRelay, client: Client) -> None:
    one, two = await relay.connect(), await relay.connect()
    sent = json.loads(texts(await client.call_tool("message_owner", {"text": "Tea is ready", "title": "Kitchen"})))
    assert {delivery["device_id"] for delivery in sent["deliveries"]} == {
        phone.auth["device_id"] for phone in (one, two)
    }
    for phone in (one, two):
        frame = await phone.until("message")
        said = {name: frame.payload[name] for name in ("text", "title", "source", "message_id")}
        assert (frame.seq, said) == (
            1, {"text": "Tea is ready", "title": "Kitchen", "source": "tool", "message_id": sent["message_id"]},
        )  # fmt: skip
    kept = await relay.relay.messages.look(sent["message_id"])
    assert kept.stored.sender == OPERATOR


async def test_a_message_to_one_phone_that_need_not_wake(relay: RunningRelay, client: Client) -> None:
    one, two = await relay.connect(), await relay.connect()
    only = {"text": "psst", "device": one.auth["device_id"], "wake": False}
    await client.call_tool("message_owner", only)
    await one.until("message")
    await two.ping()
    assert "message" not in [frame.type for frame in two.frames]


async def test_a_message_that_cannot_be_kept(relay: RunningRelay, client: Client) -> None:
    assert code(await client.call_tool("message_owner", {"text": "hello?"})) == "no_devices"
    await relay.connect()
    assert code(await client.call_tool("message_owner", {"text": "x", "device": "nobody"})) == "device_unknown"
    assert code(await client.call_tool("message_owner", {"text": "x" * (1024 * 1024 + 1)})) == "message_too_big"
    for text in ("", "  \n"):
        assert code(await client.call_tool("message_owner", {"text": text})) == "payload_invalid"


def notification(**fields: Any) -> dict[str, Any]:
    return {"package_name": "com.example.mail", "title": "Mail", "text": INJECTION, "key": "k1", **fields}


async def test_notifications_are_data_and_the_newest_come_first(relay: RunningRelay, client: Client) -> None:
    one, two = await relay.connect(), await relay.connect()
    await one.send("notifications", "notification.posted", notification())
    await one.ping()
    await two.send("notifications", "notification.posted", notification(title="Other", key="k2"))
    await two.ping()
    found = inside(await client.call_tool("notifications", {}))
    assert [note["title"] for note in found] == ["Other", "Mail"]
    assert found[1]["text"] == INJECTION
    assert [note["title"] for note in inside(await client.call_tool("notifications", {"limit": 1}))] == ["Other"]
    of_one = inside(await client.call_tool("notifications", {"device": one.auth["device_id"]}))
    assert [note["title"] for note in of_one] == ["Mail"]


async def test_devices_say_which_there_are(client: Client, simulator: PhoneSimulator) -> None:
    (device,) = inside(await client.call_tool("devices", {}))
    assert (device["device_id"], device["device_name"]) == (simulator.device_id, "Pixel Test")
    assert (device["connected"], device["active"], device["battery"]) == (True, True, 81)
