"""Turns over the whole relay on a real Hermes: its session stream, as the version in tests/requires.py speaks it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.hermes.conftest import Lab
from tests.phone import Frame, Phone
from tests.relay import RunningRelay

pytestmark = pytest.mark.hermes


async def ended(phone: Phone, turn_id: str) -> dict[str, Any]:
    """The kept end of a turn."""
    return (await _end(phone, turn_id)).payload


async def _end(phone: Phone, turn_id: str) -> Frame:
    while True:
        frame = await phone.next()
        if frame.type in ("turn.completed", "turn.failed") and frame.payload["turn_id"] == turn_id:
            assert frame.seq is not None
            return frame


async def send(phone: Phone, message: Any, **fields: Any) -> dict[str, Any]:
    """The chat.accepted payload."""
    answer = await phone.ask("chat", "chat.send", {"message": message, **fields})
    assert answer.type == "chat.accepted", answer
    return answer.payload


def shown(frames: list[Frame]) -> str:
    """What a client shows that takes snapshots and appends deltas."""
    text, n = "", 0
    for frame in frames:
        if frame.type == "turn.snapshot":
            text, n = frame.payload["state"]["text"], frame.payload["n"]
        elif frame.type == "stream.event":
            assert frame.payload["seq"] == n + 1
            n = frame.payload["seq"]
            text += frame.payload["payload"].get("delta", "") if frame.payload["event"] == "assistant.delta" else ""
    return text


def events(phone: Phone, name: str) -> list[dict[str, Any]]:
    return [f.payload["payload"] for f in phone.frames if f.type == "stream.event" and f.payload["event"] == name]


async def test_pair_and_talk(lab: Lab, relay: RunningRelay) -> None:
    phone = await relay.connect()
    assert (await relay.relay.hermes.probe())["state"] == "up"
    turn = await send(phone, "SAY:hello from the model", client_msg_id="m1")
    session = (await phone.until("chat.session")).payload["session_id"]
    end = await ended(phone, turn["turn_id"])
    assert (end["text"], end["finish"], end["session_id"]) == ("hello from the model", "completed", session)
    assert end["usage"]["total_tokens"] > 0
    assert shown(phone.frames) == "hello from the model"

    again = await send(phone, "SAY:and again", session_id=session)
    assert (await ended(phone, again["turn_id"]))["text"] == "and again"
    first, second = lab.model_calls("hello from the model")[0], lab.model_calls("and again")[-1]
    assert second["n_messages"] == first["n_messages"] + 2

    page = (await phone.ask("chat", "chat.sessions.list", {"limit": 5})).payload
    assert page["sessions"][0]["id"] == session
    said = (await phone.ask("chat", "chat.sessions.messages", {"session_id": session})).payload
    assert [row["role"] for row in said["messages"]] == ["user", "assistant", "user", "assistant"]


async def test_tools_and_the_text_around_them(relay: RunningRelay) -> None:
    phone = await relay.connect()
    turn = await send(phone, "PRE:let me look\nTOOL:terminal:echo one\nTOOL:read_file:/etc/hostname")
    end = await ended(phone, turn["turn_id"])
    assert end["text"].startswith("let me look\n\ntool said:")
    assert shown(phone.frames) == end["text"]
    started, completed = events(phone, "tool.started"), events(phone, "tool.completed")
    assert [(tool["tool_id"], tool["tool_name"]) for tool in started] == [("t1", "terminal"), ("t2", "read_file")]
    assert started[0]["args"] == {"command": "echo one"}
    results = {tool["tool_id"]: tool["result"] for tool in completed if "result" in tool}
    assert json.loads(results["t1"])["output"] == "one"
    assert set(results) == {"t1", "t2"}


async def test_reasoning_is_there_at_the_end(relay: RunningRelay) -> None:
    phone = await relay.connect()
    turn = await send(phone, "THINK:first I consider the options\nSAY:the answer is 42")
    end = await ended(phone, turn["turn_id"])
    assert (end["text"], end["reasoning"]) == ("the answer is 42", "first I consider the options")


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


async def test_the_model_refuses(relay: RunningRelay) -> None:
    phone = await relay.connect()
    turn = await send(phone, "ERROR:400")
    end = await ended(phone, turn["turn_id"])
    assert (end["finish"], end["text"]) == ("failed", "")
    assert (end["error"]["code"], end["error"]["layer"]) == ("model_failed", "agent")
    assert "400" in end["error"]["message"]
    assert events(phone, "assistant.completed") == []


async def test_the_model_is_down(lab: Lab, relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hermes tries three times, which takes it about 22 s."""
    monkeypatch.setattr("tests.phone.WAIT", 90.0)
    phone = await relay.connect()
    lab.stop_model()
    try:
        turn = await send(phone, "SAY:nobody answers")
        end = await ended(phone, turn["turn_id"])
    finally:
        lab.start_model()
    assert (end["finish"], end["error"]["layer"]) == ("failed", "agent")
    assert "onnect" in end["error"]["message"]
    session = end["session_id"]
    after = await send(phone, "SAY:back again", session_id=session)
    assert (await ended(phone, after["turn_id"]))["text"] == "back again"


async def test_the_model_is_cut_off_and_hermes_goes_on(relay: RunningRelay) -> None:
    phone = await relay.connect()
    end = await ended(phone, (await send(phone, "CUT:3\nWORDS:8"))["turn_id"])
    assert end["finish"] == "completed"
    assert end["text"].startswith("w1 w2 w3")


async def test_hermes_restarts_and_still_finishes_the_turn(
    lab: Lab, relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream ends without an end, and the dying process stores the answer: the history knows."""
    monkeypatch.setattr("tests.phone.WAIT", 90.0)
    phone = await relay.connect()
    turn = await send(phone, "WORDS:40 DELAY:100")
    await phone.event("assistant.delta")
    await asyncio.to_thread(lab.restart)
    end = await ended(phone, turn["turn_id"])
    assert (end["finish"], end["text"]) == ("completed", " ".join(f"w{n}" for n in range(1, 41)))
    assert shown(phone.frames) == end["text"]
    assert len(lab.model_calls("WORDS:40 DELAY:100")) == 1


async def test_the_phone_is_gone_for_the_whole_turn(relay: RunningRelay) -> None:
    phone, tablet = await relay.connect(), await relay.connect()
    turn = await send(phone, "WORDS:20 DELAY:30")
    await phone.hang_up()
    end = await ended(tablet, turn["turn_id"])
    assert end["text"].endswith("w20")

    back = await relay.connect(session_token=phone.token)
    assert back.auth["turns"] == []
    kept = await _end(back, turn["turn_id"])
    assert (kept.seq, kept.payload) == (1, end)
    assert (await back.until("synced")).payload["head"] == 1
    assert [frame.type for frame in back.frames] == ["auth.ok", "turn.completed", "synced"]


async def test_the_phone_leaves_and_comes_back_in_mid_turn(relay: RunningRelay) -> None:
    phone, whole = await relay.connect(), await relay.connect()
    turn = await send(phone, "WORDS:60 DELAY:40")
    await whole.send("chat", "chat.watch", turn_id=turn["turn_id"])
    await phone.event("assistant.delta")
    await phone.hang_up()
    await whole.event("assistant.delta")

    back = await relay.connect(session_token=phone.token)
    assert [t["turn_id"] for t in back.auth["turns"]] == [turn["turn_id"]]
    snapshot = (await back.until("turn.snapshot")).payload
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
