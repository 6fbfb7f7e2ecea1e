"""The chat channel frame by frame, through the dispatch that every link uses."""

from __future__ import annotations

from typing import Any

import pytest

from app.wire.payloads import Supports
from tests.channels.conftest import Say
from tests.turns.rooms import OLDER, Rooms


async def test_the_answer_comes_before_every_event(rooms: Rooms, say: Say) -> None:
    phone = rooms.phone()
    accepted = await say(phone, "chat.send", {"message": "SAY:hi", "client_msg_id": "m"})
    assert accepted["type"] == "chat.accepted"
    await phone.event("done")
    assert phone.types()[:2] == ["chat.accepted", "chat.session"]


@pytest.mark.parametrize(
    ("type_", "payload", "code"),
    [
        ("chat.send", {}, "payload_invalid"),
        ("chat.send", {"message": ""}, "payload_invalid"),
        ("chat.send", {"message": " \r\n "}, "payload_invalid"),
        ("chat.send", {"message": []}, "payload_invalid"),
        ("chat.send", {"message": [{"type": "video"}]}, "payload_invalid"),
        ("chat.send", {"message": 7}, "payload_invalid"),
        ("chat.send", {"message": [{"type": "media", "media_id": "x"}]}, "media_unknown"),
        ("chat.send", {"message": "x" * 70_000}, "message_too_long"),
        ("chat.watch", {}, "payload_invalid"),
        ("chat.watch", {"turn_id": "none"}, "turn_unknown"),
        ("chat.unwatch", {}, "payload_invalid"),
        ("chat.stop", {"turn_id": "none"}, "turn_unknown"),
        ("chat.stop", {}, "payload_invalid"),
        ("chat.nothing", {}, "unknown_type"),
    ],
)
async def test_every_refusal_is_a_system_error(rooms: Rooms, say: Say, type_: str, payload: Any, code: str) -> None:
    frame = await say(rooms.phone(), type_, payload)
    assert (frame["channel"], frame["type"]) == ("system", "error")
    assert (frame["payload"]["code"], frame["payload"]["ref"]) == (code, "f1")


async def test_without_the_grant_nothing_is_heard(rooms: Rooms, say: Say) -> None:
    for grants in ({}, {"terminal": None}, {"chat": rooms.clock.now()}):
        frame = await say(rooms.phone(grants=grants), "chat.send", {"message": "hi"})
        assert frame["payload"]["code"] == "grant_missing"
    assert rooms.agent.turns_started == []


async def test_an_older_client_is_refused_in_its_own_words(rooms: Rooms, say: Say) -> None:
    frame = await say(rooms.phone(supports=OLDER), "chat.send", {"message": "x" * 70_000})
    assert (frame["channel"], frame["type"]) == ("chat", "chat.error")
    assert frame["payload"]["code"] == "message_too_long"
    assert frame["payload"]["message"]


async def test_who_would_hear_nothing_of_a_turn_is_told_so_and_none_begins(rooms: Rooms, say: Say) -> None:
    frame = await say(rooms.phone(supports=Supports()), "chat.send", {"message": "SAY:hi"})
    assert (frame["type"], frame["payload"]["code"]) == ("chat.error", "not_supported")
    assert rooms.agent.turns_started == []


async def test_stop_answers(rooms: Rooms, say: Say) -> None:
    phone = rooms.phone()
    turn = (await say(phone, "chat.send", {"message": "SAY:hi"}))["payload"]["turn_id"]
    await rooms.ended(turn)
    stopped = await say(phone, "chat.stop", {"turn_id": turn}, "f2")
    assert stopped["payload"] == {"turn_id": turn, "stopped": False, "reason": "the turn has ended"}


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/passwd", "ftp://h/x.png", "data:text/html,x", ""])
async def test_a_picture_comes_from_the_phone_or_the_web(rooms: Rooms, say: Say, url: str) -> None:
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    refused = await say(rooms.phone(), "chat.send", {"message": parts})
    assert refused["payload"]["code"] == "payload_invalid"
