"""The chat channel frame by frame, through the dispatch that every link uses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest

from app.channels.base import Dispatch, refusal
from app.channels.chat import MAX_PAGE, MAX_ROW, Chat, page_of
from app.channels.later import MAX_ASKING
from app.errors import RelayError
from app.wire.envelope import Envelope
from tests.turns.rooms import OLDER, Frame, Phone, Rooms

Say = Callable[..., Awaitable[Frame]]


@pytest.fixture
def dispatch(rooms: Rooms) -> Dispatch:
    return Dispatch([Chat(rooms.turns, rooms.hermes, rooms.tasks)], rooms.clock)


@pytest.fixture
def say(dispatch: Dispatch) -> Say:
    """Sends a frame as a link's worker does and returns the first frame with its id."""

    async def say(phone: Phone, type_: str, payload: Any = None, id: str = "f1") -> Frame:
        begun = len(phone.frames)
        try:
            waiting = dispatch(Envelope("chat", type_, id, payload or {}), phone)
            if waiting is not None:
                await waiting
        except RelayError as exc:
            phone.send(refusal(exc, id))
        async with asyncio.timeout(10):
            while True:
                for frame in phone.frames[begun:]:
                    if frame.get("id") == id:
                        return frame
                phone._news.clear()
                await phone._news.wait()

    return say


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
        ("chat.send", {"message": []}, "payload_invalid"),
        ("chat.send", {"message": [{"type": "video"}]}, "payload_invalid"),
        ("chat.send", {"message": 7}, "payload_invalid"),
        ("chat.send", {"message": [{"type": "media", "media_id": "x"}]}, "media_unsupported"),
        ("chat.send", {"message": "x" * 70_000}, "message_too_long"),
        ("chat.watch", {}, "payload_invalid"),
        ("chat.watch", {"turn_id": "none"}, "turn_unknown"),
        ("chat.unwatch", {}, "payload_invalid"),
        ("chat.stop", {"turn_id": "none"}, "turn_unknown"),
        ("chat.stop", {}, "payload_invalid"),
        ("chat.sessions.list", {"limit": 201}, "payload_invalid"),
        ("chat.sessions.list", {"offset": -1}, "payload_invalid"),
        ("chat.sessions.messages", {}, "payload_invalid"),
        ("chat.sessions.messages", {"session_id": "none"}, "session_not_found"),
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


async def test_stop_answers(rooms: Rooms, say: Say) -> None:
    phone = rooms.phone()
    turn = (await say(phone, "chat.send", {"message": "SAY:hi"}))["payload"]["turn_id"]
    await rooms.ended(turn)
    stopped = await say(phone, "chat.stop", {"turn_id": turn}, "f2")
    assert stopped["payload"] == {"turn_id": turn, "stopped": False, "reason": "the turn has ended"}


async def test_the_list_of_conversations(rooms: Rooms, say: Say) -> None:
    ids = [await rooms.session() for _ in range(3)]
    first = (await say(rooms.phone(), "chat.sessions.list", {"limit": 2}))["payload"]
    assert [session["id"] for session in first["sessions"]] == ids[:0:-1]
    assert (first["limit"], first["offset"], first["has_more"]) == (2, 0, True)
    rest = (await say(rooms.phone(), "chat.sessions.list", {"limit": 2, "offset": 2}))["payload"]
    assert [session["id"] for session in rest["sessions"]] == ids[:1]
    assert rest["has_more"] is False


async def test_the_messages_of_a_conversation_page_by_page(rooms: Rooms, say: Say) -> None:
    session = await rooms.session()
    for n in range(7):
        rooms.agent.history.add(session, {"role": "user", "content": f"m{n}"})

    async def page(**asked: int) -> tuple[list[str], int, bool]:
        answer = await say(rooms.phone(), "chat.sessions.messages", {"session_id": session, **asked})
        assert answer["type"] == "chat.sessions.messages"
        said = answer["payload"]
        return [row["content"] for row in said["messages"]], said["offset"], said["has_more"]

    assert await page(limit=3) == (["m4", "m5", "m6"], 4, False)
    assert await page(limit=3, offset=1) == (["m1", "m2", "m3"], 1, True)
    assert await page(limit=3, offset=6) == (["m6"], 6, False)
    assert await page(limit=3, offset=70) == ([], 70, False)
    assert (await page())[1] == 0


async def test_a_link_may_ask_so_much_at_once_and_no_more(rooms: Rooms, dispatch: Dispatch, say: Say) -> None:
    phone = rooms.phone()
    for n in range(MAX_ASKING):
        assert dispatch(Envelope("chat", "chat.sessions.list", f"a{n}", {}), phone) is None
    refused = await say(phone, "chat.sessions.list", {}, "over")
    assert refused["payload"]["code"] == "overloaded"
    assert refused["payload"]["retryable"] is True
    for _ in range(MAX_ASKING):
        await phone.until("chat.sessions")
    assert (await say(phone, "chat.sessions.list", {}, "again"))["type"] == "chat.sessions"


def deepest() -> Any:
    """As deeply nested as an answer of Hermes can carry it: a frame puts it one level further down."""
    nested: Any = []
    with suppress(orjson.JSONEncodeError):
        while orjson.dumps({"data": [{"content": [nested]}]}):
            nested = [nested]
    return nested


async def test_what_no_frame_can_carry_is_still_answered(rooms: Rooms, say: Say) -> None:
    session, nested = await rooms.session(), deepest()
    rooms.agent.history.add(session, {"role": "user", "content": nested})
    answer = await say(rooms.phone(), "chat.sessions.messages", {"session_id": session})
    assert (answer["type"], answer["payload"]["code"]) == ("error", "internal_error")


# pages


def row(n: int, content: Any) -> dict[str, Any]:
    return {"id": n, "role": "user", "content": content}


def test_a_page_fits_into_a_frame() -> None:
    rows = [row(n, "ü" * (MAX_ROW // 2 - 100)) for n in range(40)]
    newest, offset = page_of(rows, 40, None)
    assert len(json.dumps(newest, ensure_ascii=False).encode()) <= MAX_PAGE
    assert newest == rows[offset:]
    oldest, offset = page_of(rows, 40, 0)
    assert (oldest, offset) == (rows[: len(newest)], 0)


@pytest.mark.parametrize("content", ["x" * MAX_PAGE * 2, [{"type": "image_url", "image_url": {"url": "x" * MAX_PAGE}}]])
def test_a_row_that_is_too_long_is_cut_and_says_so(content: Any) -> None:
    (shown,), _ = page_of([row(1, content)], 10, None)
    assert shown["truncated"] is True
    assert (shown["id"], shown["role"]) == (1, "user")
    assert 0 < len(shown["content"]) <= MAX_ROW


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/passwd", "ftp://h/x.png", "data:text/html,x", ""])
async def test_a_picture_comes_from_the_phone_or_the_web(rooms: Rooms, say: Say, url: str) -> None:
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    refused = await say(rooms.phone(), "chat.send", {"message": parts})
    assert refused["payload"]["code"] == "payload_invalid"
