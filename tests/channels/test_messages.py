"""What a device may say in chats, and how it is told that it may not."""

from __future__ import annotations

from typing import Any

import pytest

from app.threads import service
from tests.relay import RunningRelay


@pytest.mark.parametrize(
    ("type_", "said", "code"),
    [
        ("message.send", {"text": "  "}, "payload_invalid"),
        ("message.send", {"text": "x" * 65_537}, "payload_invalid"),
        ("message.send", {"text": "x", "media": ["m"] * 11}, "payload_invalid"),
        ("message.send", {"text": "x", "chat_id": ""}, "payload_invalid"),
        ("message.send", {"text": "x", "chat_id": "device:another"}, "chat_unknown"),
        ("threads.list", {"limit": 201}, "payload_invalid"),
        ("threads.history", {"chat_id": "nowhere"}, "chat_unknown"),
        ("threads.read", {"chat_id": "nowhere"}, "chat_unknown"),
        ("message.forget", {}, "unknown_type"),
    ],
)
async def test_refusals(relay: RunningRelay, type_: str, said: dict[str, Any], code: str) -> None:
    phone = await relay.connect()
    refused = await phone.ask("messages", type_, said)
    assert (refused.type, refused.payload["code"]) == ("error", code)


async def test_chats_are_bounded(relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CHATS", 2)
    phone = await relay.connect()
    assert (await phone.ask("messages", "message.send", chat_id="work", text="x")).type == "message.accepted"
    refused = await phone.ask("messages", "message.send", chat_id="play", text="x")
    assert refused.payload["code"] == "chats_full"
    assert (await phone.ask("messages", "message.send", chat_id="work", text="x")).type == "message.accepted"


async def test_the_answer_says_where_it_went(relay: RunningRelay) -> None:
    phone = await relay.connect()
    answer = await phone.ask("messages", "message.send", text="x", thread_id="t", client_msg_id="c")
    message_id = answer.payload["message_id"]
    assert answer.payload == {
        "client_msg_id": "c", "message_id": message_id, "chat_id": "home", "thread_id": "t", "queued": True,
    }  # fmt: skip
    page = await phone.ask("messages", "threads.history", thread_id="t")
    (message,) = page.payload["messages"]
    assert message == {
        "message_id": message_id, "chat_id": "home", "thread_id": "t", "text": "x", "source": "device",
        "device_id": phone.auth["device_id"], "sent_at": message["sent_at"],
    }  # fmt: skip
    assert (await phone.ask("messages", "commands.list")).payload == {"commands": []}
