"""Conversations on a real Hermes: made, named, copied and removed from a phone, and pushed to the others."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.talk import say, send
from tests.hermes.ways import running_over
from tests.phone import Phone
from tests.relay import RunningRelay

pytestmark = pytest.mark.hermes


@pytest.fixture(params=["dashboard", "session_stream"])
async def relay(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with running_over(request.param, lab, tmp_path) as relay:
        yield relay


async def ask(phone: Phone, verb: str, **payload: Any) -> dict[str, Any]:
    answer = await phone.ask("chat", f"chat.sessions.{verb}", payload)
    assert answer.type == f"chat.sessions.{verb}", answer
    return answer.payload


async def test_made_named_copied_and_removed(relay: RunningRelay) -> None:
    phone, tablet = await relay.connect(), await relay.connect()
    title = f"Plans {uuid.uuid4().hex}"
    made = (await ask(phone, "create", title=title))["session"]
    told = (await tablet.until("chat.session")).payload
    assert (told["session_id"], told["title"]) == (made["id"], title)
    assert (await say(phone, "SAY:first words", session_id=made["id"]))["text"] == "first words"
    found = (await ask(tablet, "get", session_id=made["id"]))["session"]
    assert (found["id"], found["title"]) == (made["id"], title)

    renamed = (await ask(phone, "rename", session_id=made["id"], title=f"{title} later"))["session"]
    assert renamed["title"] == f"{title} later"
    told = (await tablet.until("chat.session", lambda f: f.payload.get("title") == f"{title} later")).payload
    assert told["session_id"] == made["id"]

    copy = (await ask(phone, "fork", session_id=made["id"], title=f"{title} copy"))["session"]
    assert copy["id"] != made["id"]
    said = await ask(phone, "messages", session_id=copy["id"])
    assert [row["content"] for row in said["messages"]] == ["SAY:first words", "first words"]
    assert (await say(phone, "SAY:in the copy", session_id=copy["id"]))["session_id"] == copy["id"]

    assert (await ask(phone, "delete", session_id=made["id"])) == {"session_id": made["id"], "deleted": True}
    await tablet.until("chat.session", lambda f: "deleted" in f.payload and f.payload["session_id"] == made["id"])
    gone = await phone.ask("chat", "chat.sessions.get", session_id=made["id"])
    assert (gone.type, gone.payload["code"]) == ("error", "session_not_found")
    assert (await ask(phone, "get", session_id=copy["id"]))["session"]["id"] == copy["id"]


async def test_a_write_happens_once(relay: RunningRelay) -> None:
    phone = await relay.connect()
    title = f"Once {uuid.uuid4().hex}"
    ids = set()
    for _ in range(2):
        await phone.send("chat", "chat.sessions.create", {"title": title}, id="the-same-frame")
        ids.add((await phone.until("chat.sessions.create")).payload["session"]["id"])
    assert len(ids) == 1


async def test_what_hermes_refuses_is_named(relay: RunningRelay) -> None:
    phone = await relay.connect()
    title = f"Taken {uuid.uuid4().hex}"
    one = (await ask(phone, "create", title=title))["session"]["id"]
    other = (await ask(phone, "create", title=f"{title} too"))["session"]["id"]
    for payload in ({"session_id": other, "title": title}, {"session_id": other, "title": "x" * 200}):
        refused = await phone.ask("chat", "chat.sessions.rename", payload)
        assert refused.type == "error", payload
        assert refused.payload["layer"] in ("upstream", "relay")
    assert (await ask(phone, "get", session_id=one))["session"]["title"] == title


async def test_a_conversation_in_use_is_not_removed(relay: RunningRelay, tmp_path: Path) -> None:
    phone = await relay.connect()
    session = (await say(phone, "SAY:start"))["session_id"]
    turn = await send(phone, f"WORDS:20 DELAY:40 HALF:{tmp_path / 'rest'}", session_id=session)
    await phone.event("assistant.delta")
    refused = await phone.ask("chat", "chat.sessions.delete", session_id=session)
    assert refused.payload["code"] == "session_busy"
    (tmp_path / "rest").touch()
    await phone.until("turn.completed", lambda f: f.payload["turn_id"] == turn["turn_id"])
    assert (await ask(phone, "delete", session_id=session))["deleted"] is True


async def test_a_title_that_hermes_makes_is_pushed(lab: Lab, tmp_path: Path) -> None:
    async with running_over("dashboard", lab, tmp_path) as relay:
        phone, tablet = await relay.connect(), await relay.connect()
        end = await say(phone, f"SAY:about {uuid.uuid4().hex}")
        phone.read = 0  # it may have come before the end of the turn, which is kept first
        titled = await phone.until(
            "chat.session", lambda f: f.payload["session_id"] == end["session_id"] and "title" in f.payload
        )
        assert titled.payload["title"].startswith("Chat ")
        pushed = await tablet.until("chat.session", lambda f: f.payload.get("title") == titled.payload["title"])
        assert pushed.payload["session_id"] == end["session_id"]


async def test_a_profile_that_hermes_does_not_serve(relay: RunningRelay) -> None:
    """A gateway without multiplexing would ignore the prefix: the turn would run as somebody else."""
    phone = await relay.connect()
    end = await say(phone, "SAY:as somebody else", profile="work")
    assert end["finish"] == "failed"
    assert end["error"]["code"] == "profile_unknown"
