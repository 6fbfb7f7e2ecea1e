"""A turn through the gateway, from a phone to a plugin and back."""

from __future__ import annotations

from tests.link import CURSOR, linked
from tests.relay import RunningRelay


async def test_a_turn_through_the_gateway(relay: RunningRelay) -> None:
    phone = await relay.connect()
    async with linked(relay.url, relay.relay.link.read()) as plugin:
        accepted = await phone.ask("messages", "message.send", chat_id="home", text="hi", client_msg_id="c1")
        assert accepted.type == "message.accepted", accepted
        assert accepted.payload["queued"] is False
        inbound = await plugin.take()
        assert inbound["inbound_id"] == accepted.payload["message_id"]
        assert (inbound["text"], inbound["chat_id"], inbound["chat_name"]) == ("hi", "home", "Home")
        answers = {"reply_to": inbound["inbound_id"]}
        await plugin.update("m1", "Hel" + CURSOR, **answers)
        start = await phone.until("message.start")
        assert start.payload["text"] == "Hel"
        await plugin.update("m1", "Hello wor" + CURSOR, **answers)
        assert (await phone.until("message.update")).payload["text"] == "Hello wor"
        verdict = await plugin.message("Hello world", local_id="m1", **answers)
        assert verdict["message_id"] == start.payload["message_id"]
        message = await phone.until("message")
        assert message.seq == 1
        assert message.payload["text"] == "Hello world"
        assert message.payload["message_id"] == start.payload["message_id"]
        assert (await plugin.message("Hello world", local_id="m1", **answers))["message_id"] == verdict["message_id"]
        assert (await plugin.done(inbound))["type"] == "ok"
        await phone.ping()
        assert [frame.type for frame in phone.frames].count("message") == 1
