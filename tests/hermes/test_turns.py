"""Turns over the whole relay on a real Hermes: its session stream, as the version in tests/requires.py speaks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.talk import end_frame, ended, send, shown
from tests.phone import Phone
from tests.relay import RunningRelay

pytestmark = pytest.mark.hermes


async def test_every_character_arrives(relay: RunningRelay) -> None:
    phone = await relay.connect()
    text = "日本語 и ελληνικά, עברית 👩‍🚀 🏳️‍🌈 done"
    turn = await send(phone, f"SAY:{text}")
    assert (await ended(phone, turn["turn_id"]))["text"] == text


async def test_a_picture_is_accepted(relay: RunningRelay) -> None:
    phone = await relay.connect()
    url = (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
        "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    parts = [{"type": "text", "text": "SAY:seen"}, {"type": "image_url", "image_url": {"url": url}}]
    end = await ended(phone, (await send(phone, parts))["turn_id"])
    assert end["finish"] == "completed"


async def test_the_model_is_cut_off_and_hermes_goes_on(relay: RunningRelay) -> None:
    phone = await relay.connect()
    end = await ended(phone, (await send(phone, "CUT:3\nWORDS:8"))["turn_id"])
    assert end["finish"] == "completed"
    assert end["text"].startswith("w1 w2 w3")


async def test_the_phone_is_gone_for_the_whole_turn(relay: RunningRelay, tmp_path: Path) -> None:
    phone, tablet = await relay.connect(), await relay.connect()
    turn = await send(phone, f"WORDS:20 DELAY:30 HOLD:{tmp_path / 'gone'}")
    await phone.hang_up()
    (tmp_path / "gone").touch()
    end = await ended(tablet, turn["turn_id"])
    assert end["text"].endswith("w20")

    back = await relay.connect(session_token=phone.token)
    assert back.auth["turns"] == []
    kept = await end_frame(back, turn["turn_id"])
    assert (kept.seq, kept.payload) == (1, end)
    assert (await back.until("synced")).payload["head"] == 1
    assert [frame.type for frame in back.frames] == ["auth.ok", "turn.completed", "synced"]


async def test_the_phone_leaves_and_comes_back_in_mid_turn(relay: RunningRelay, tmp_path: Path) -> None:
    phone, whole = await relay.connect(), await relay.connect()
    turn = await send(phone, f"WORDS:60 DELAY:40 HALF:{tmp_path / 'back'}")
    await whole.send("chat", "chat.watch", turn_id=turn["turn_id"])
    await phone.event("assistant.delta")
    await phone.hang_up()
    await whole.event("assistant.delta")

    back = await relay.connect(session_token=phone.token)
    assert [t["turn_id"] for t in back.auth["turns"]] == [turn["turn_id"]]
    snapshot = (await back.until("turn.snapshot")).payload
    (tmp_path / "back").touch()
    assert 0 < len(snapshot["state"]["text"]) < len(shown(whole.frames) + " w60" * 60)
    end = await ended(back, turn["turn_id"])
    assert shown(back.frames) == end["text"] == " ".join(f"w{n}" for n in range(1, 61))
    assert await ended(whole, turn["turn_id"]) == end
    assert shown(whole.frames) == end["text"]
    assert sum(frame.type == "stream.event" for frame in back.frames) > 10


async def test_two_devices_watch_one_conversation(relay: RunningRelay) -> None:
    phone, tablet = await relay.connect(), await relay.connect()
    first = await send(phone, "SAY:first")
    session = (await ended(phone, first["turn_id"]))["session_id"]
    await tablet.send("chat", "chat.watch", session_id=session)
    await tablet.ping()
    turn = await send(phone, "PRE:look\nTOOL:terminal:echo two", session_id=session)
    mine, theirs = await ended(phone, turn["turn_id"]), await ended(tablet, turn["turn_id"])
    assert mine == theirs

    def of_turn(watcher: Phone) -> list[dict[str, Any]]:
        return [
            f.payload for f in watcher.frames if f.type == "stream.event" and f.payload["turn_id"] == turn["turn_id"]
        ]

    assert of_turn(tablet) == of_turn(phone)
    assert len(of_turn(phone)) > 5


async def test_one_at_a_time_and_each_once(lab: Lab, relay: RunningRelay) -> None:
    phone = await relay.connect()
    session = (await ended(phone, (await send(phone, "SAY:start"))["turn_id"]))["session_id"]
    sent = [
        await send(phone, f"SAY:once-{n} DELAY:20", session_id=session, client_msg_id=f"m{n}") for n in (1, 2, 2, 3)
    ]  # fmt: skip
    assert sent[1] == sent[2]
    assert [turn["position"] for turn in sent] == [0, 1, 1, 2]
    for turn in (sent[0], sent[1], sent[3]):
        assert (await ended(phone, turn["turn_id"]))["finish"] == "completed"
    said = (await phone.ask("chat", "chat.sessions.messages", {"session_id": session})).payload["messages"]
    assert [row["role"] for row in said] == ["user", "assistant"] * 4
    assert [len(lab.model_calls(f"once-{n}")) for n in (1, 2, 3)] == [1, 1, 1]


async def test_a_conversation_that_does_not_exist(relay: RunningRelay) -> None:
    phone = await relay.connect()
    end = await ended(phone, (await send(phone, "hi", session_id="none"))["turn_id"])
    assert (end["error"]["code"], end["error"]["layer"]) == ("session_not_found", "upstream")
