"""What devices ask about conversations, frame by frame, on the stand-in's own conversations."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import orjson
import pytest

from app.channels.base import Dispatch
from app.channels.conversations import MAX_PAGE, MAX_ROW, page_of
from app.channels.later import MAX_ASKING
from app.wire.envelope import Envelope
from tests.channels.conftest import Say
from tests.turns.rooms import OLDER, Phone, Rooms


@pytest.fixture
def phone(rooms: Rooms) -> Phone:
    return rooms.phone()


@pytest.fixture
def tablet(rooms: Rooms) -> Phone:
    """Another device: it hears of what the phone does."""
    return rooms.phone("tablet")


def heard(phone: Phone) -> list[dict[str, Any]]:
    return [frame["payload"] for frame in phone.frames if frame["type"] == "chat.session"]


async def titles(rooms: Rooms) -> list[str | None]:
    return [session["title"] for session in (await rooms.hermes.api.list_sessions(50, 0))[0]]


@pytest.mark.parametrize(
    ("type_", "payload", "code"),
    [
        ("chat.sessions.list", {"limit": 201}, "payload_invalid"),
        ("chat.sessions.list", {"offset": -1}, "payload_invalid"),
        ("chat.sessions.messages", {}, "payload_invalid"),
        ("chat.sessions.messages", {"session_id": "none"}, "session_not_found"),
        ("chat.sessions.get", {"session_id": "none"}, "session_not_found"),
        ("chat.sessions.get", {"session_id": "../../health"}, "upstream_unsupported"),
        ("chat.sessions.get", {"session_id": "."}, "session_not_found"),
        ("chat.sessions.delete", {"session_id": ".."}, "session_not_found"),
        ("chat.sessions.create", {"title": "x" * 101}, "title_refused"),
        ("chat.sessions.create", {"title": "x" * 1001}, "payload_invalid"),
        ("chat.sessions.create", {"profile": "other"}, "profile_unknown"),
        ("chat.sessions.list", {"profile": "other"}, "profile_unknown"),
        ("chat.sessions.rename", {"session_id": "none", "title": "t"}, "session_not_found"),
        ("chat.sessions.rename", {"session_id": "none", "title": " "}, "payload_invalid"),
        ("chat.sessions.delete", {"session_id": "none"}, "session_not_found"),
        ("chat.sessions.fork", {"session_id": "none"}, "session_not_found"),
    ],
)
async def test_refusals(rooms: Rooms, say: Say, tablet: Phone, type_: str, payload: Any, code: str) -> None:
    frame = await say(rooms.phone(), type_, payload)
    assert (frame["channel"], frame["type"]) == ("system", "error")
    assert (frame["payload"]["code"], frame["payload"]["ref"]) == (code, "f1")
    assert heard(tablet) == []


async def test_create_get_rename_fork_delete(rooms: Rooms, say: Say, phone: Phone, tablet: Phone) -> None:
    async def ask(what: str, **payload: Any) -> dict[str, Any]:
        answer = await say(phone, f"chat.sessions.{what}", payload, what)
        assert (answer["channel"], answer["type"], answer["id"]) == ("chat", f"chat.sessions.{what}", what)
        said: dict[str, Any] = answer["payload"]
        return said

    made = (await ask("create", title="one", model="m", profile="default"))["session"]
    assert (made["title"], made["model"]) == ("one", "m")
    rooms.agent.history.add(made["id"], {"role": "user", "content": "hi"})
    renamed = (await ask("rename", session_id=made["id"], title=" two "))["session"]
    assert (renamed["id"], renamed["title"]) == (made["id"], "two")
    assert (await ask("get", session_id=made["id"]))["session"]["title"] == "two"
    fork = (await ask("fork", session_id=made["id"], title="three"))["session"]
    assert (fork["title"], fork["parent_session_id"], fork["message_count"]) == ("three", made["id"], 1)
    assert await ask("delete", session_id=fork["id"]) == {"session_id": fork["id"], "deleted": True}
    assert await titles(rooms) == ["two"]
    assert heard(tablet) == [
        {"session_id": made["id"], "title": "one"},
        {"session_id": made["id"], "title": "two"},
        {"session_id": fork["id"], "title": "three"},
        {"session_id": fork["id"], "deleted": True},
    ]
    assert heard(phone) == []


async def test_only_who_may_chat_and_knows_turns_hears_of_it(rooms: Rooms, say: Say, phone: Phone) -> None:
    own = rooms.phone(instance="another window")
    older = rooms.phone("tablet", OLDER)
    ungranted = rooms.phone("tablet", grants={"terminal": None})
    expired = rooms.phone("tablet", grants={"chat": rooms.clock.now()})
    await say(phone, "chat.sessions.create", {"title": "t"})
    assert len(heard(own)) == 1
    assert [older.frames, ungranted.frames, expired.frames] == [[], [], []]


async def test_a_copy_of_a_frame_changes_nothing(rooms: Rooms, say: Say, phone: Phone, tablet: Phone) -> None:
    first = await say(phone, "chat.sessions.create", {"title": "t"})
    again = await say(phone, "chat.sessions.create", {"title": "t"})
    assert again == first
    other = await say(phone, "chat.sessions.create", {"title": "u"})
    assert other["payload"]["code"] == "id_reused"
    assert await titles(rooms) == ["t"]
    assert len(heard(tablet)) == 1
    deleting = {"session_id": first["payload"]["session"]["id"]}
    gone = [await say(phone, "chat.sessions.delete", deleting, "d") for _ in range(2)]
    assert gone[0] == gone[1]
    assert gone[0]["type"] == "chat.sessions.delete"


async def test_a_title_that_is_taken_leaves_no_fork_behind(rooms: Rooms, say: Say, phone: Phone) -> None:
    session = (await rooms.hermes.api.create_session(title="taken"))["id"]
    refused = (await say(phone, "chat.sessions.fork", {"session_id": session, "title": "taken"}))["payload"]
    assert refused["code"] == "title_refused"
    assert "already in use" in refused["message"]
    assert await titles(rooms) == ["taken"]
    assert (await say(phone, "chat.sessions.fork", {"session_id": session, "title": "free"}))["payload"]["session"]


async def test_a_conversation_in_which_a_turn_runs_is_not_deleted(rooms: Rooms, say: Say, phone: Phone) -> None:
    rooms.agent.gate.clear()
    session = await rooms.session()
    turn = (await say(phone, "chat.send", {"message": "hi", "session_id": session}))["payload"]["turn_id"]
    deleting = {"session_id": session}
    busy = (await say(phone, "chat.sessions.delete", deleting, "f2"))["payload"]
    assert (busy["code"], busy["retryable"]) == ("session_busy", True)
    rooms.agent.gate.set()
    await rooms.ended(turn)
    await rooms.turns.close()
    assert (await say(phone, "chat.sessions.delete", deleting, "f2"))["payload"] == {**deleting, "deleted": True}


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
