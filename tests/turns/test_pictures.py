"""Uploaded pictures in a message: checked when it is accepted, in it when it goes to Hermes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from app.errors import RelayError
from app.hermes.session_stream import SessionStream
from app.hermes.upstream import Order
from tests.turns.rooms import Rooms, open_house, open_rooms

DAY = 86400
PNG = b"\x89PNG\r\n\x1a\n" + bytes(1000)


async def put(rooms: Rooms, content: bytes = PNG, name: str = "a.png") -> str:
    async with rooms.media.upload("phone") as upload:
        await upload.add(content)
        return (await rooms.media.store(upload, sender="phone", name=name, content_type=None)).token


def message(*media_ids: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "SAY:seen"}, *({"type": "media", "media_id": id} for id in media_ids)]


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """What goes to Hermes."""
    seen: list[Order] = []
    run = SessionStream.run

    async def recorded(self: SessionStream, lease: Any, order: Order, hearer: Any) -> None:
        seen.append(order)
        await run(self, lease, order, hearer)

    monkeypatch.setattr(SessionStream, "run", recorded)
    return seen


async def test_an_uploaded_picture_goes_to_hermes_whole(rooms: Rooms, orders: list[Order]) -> None:
    turn = await rooms.send(rooms.phone(), message(await put(rooms)))
    assert (await rooms.ended(turn["turn_id"]))["text"] == "seen"
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    assert orders[0].message == [
        {"type": "text", "text": "SAY:seen"},
        {"type": "image_url", "image_url": {"url": url}},
    ]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        (None, b"", "media_unknown"),
        ("a.pdf", b"%PDF-1.7", "media_unsupported"),
        ("a.png", b"<html>", "media_unsupported"),
        ("a.png", PNG + bytes(7_000_000), "message_too_long"),
    ],
)
async def test_what_hermes_would_not_take_is_refused_and_starts_nothing(
    rooms: Rooms, name: str | None, content: bytes, code: str
) -> None:
    media_id = "nope" if name is None else await put(rooms, content, name)
    with pytest.raises(RelayError) as refused:
        await rooms.send(rooms.phone(), message(media_id))
    assert refused.value.code == code
    assert rooms.turns.running("phone") == []


async def test_pictures_are_counted(rooms: Rooms) -> None:
    small = await put(rooms)
    with pytest.raises(RelayError, match="at most 16 uploaded pictures"):
        await rooms.send(rooms.phone(), message(*[small] * 17))
    await rooms.send(rooms.phone(), message(*[small] * 16))


async def test_pictures_are_weighed_together(rooms: Rooms) -> None:
    half = await put(rooms, PNG + bytes(4_000_000))
    await rooms.send(rooms.phone(), message(half))
    inline = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5_000_000}}
    for parts in (message(half, half), [*message(half), inline]):
        with pytest.raises(RelayError, match="send smaller ones"):
            await rooms.send(rooms.phone(), parts)


async def test_a_copy_gets_its_answer_when_the_picture_is_gone(rooms: Rooms) -> None:
    phone, parts = rooms.phone(), message(await put(rooms))
    first = await rooms.send(phone, parts, "f1")
    await rooms.ended(first["turn_id"])
    rooms.clock.advance(7 * DAY)
    assert await rooms.send(phone, parts, "f1") == first


async def test_a_picture_that_goes_while_its_message_waits_fails_the_turn_by_name(rooms: Rooms) -> None:
    rooms.agent.gate.clear()
    session = await rooms.session()
    phone = rooms.phone()
    await rooms.send(phone, "gated", session_id=session)
    waiting = await rooms.send(phone, message(await put(rooms)), session_id=session)
    rooms.clock.advance(7 * DAY)
    rooms.agent.gate.set()
    end = await rooms.ended(waiting["turn_id"])
    assert (end["finish"], end["error"]["code"]) == ("failed", "media_unknown")
    assert len(rooms.agent.turns_started) == 1


async def test_a_turn_that_was_only_accepted_is_sent_after_a_restart_with_its_picture(
    tmp_path: Path, orders: list[Order]
) -> None:
    async with open_house(tmp_path) as (rooms, hermes):
        rooms.agent.gate.clear()
        session = await rooms.session()
        phone = rooms.phone()
        await rooms.send(phone, "gated", session_id=session)
        waiting = await rooms.send(phone, message(await put(rooms)), session_id=session)
        assert await rooms.state_of(waiting["turn_id"]) == "accepted"
        clock = rooms.clock
        await rooms.turns.close()
        await rooms.media.close()
        await rooms.db.close()
        rooms.agent.gate.set()
        async with open_rooms(tmp_path, hermes.url, clock=clock) as again:
            await again.turns.recover()
            assert (await again.ended(waiting["turn_id"]))["text"] == "seen"
    assert orders[-1].message[1]["type"] == "image_url"
