"""The same turns over every way into a real Hermes: each folds to the same frames, text and end."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.talk import ended, events, say, send, shown
from tests.hermes.ways import DASHBOARDS, WAYS, environ, kind, route, running_over, state_is
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for

pytestmark = pytest.mark.hermes


@dataclass(frozen=True)
class Over:
    way: str
    relay: RunningRelay
    phone: Phone


@pytest.fixture(params=WAYS)
async def over(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> AsyncIterator[Over]:
    async with running_over(request.param, lab, tmp_path) as relay:
        yield Over(request.param, relay, await relay.connect())


async def test_text_and_then_more_of_the_same_conversation(lab: Lab, over: Over) -> None:
    marker = uuid.uuid4().hex
    turn = await send(over.phone, f"SAY:hello from {marker}")
    session = (await over.phone.until("chat.session")).payload["session_id"]
    end = await ended(over.phone, turn["turn_id"])
    assert await route(over.relay, turn["turn_id"]) == kind(over.way)
    assert (end["text"], end["finish"], end["session_id"]) == (f"hello from {marker}", "completed", session)
    assert end["usage"]["total_tokens"] > 0
    assert shown(over.phone.frames) == end["text"]

    again = await say(over.phone, f"SAY:again {marker}", session_id=session)
    assert (again["text"], again["session_id"]) == (f"again {marker}", session)
    first, second = lab.model_calls(f"hello from {marker}"), lab.model_calls(f"again {marker}")
    assert len(first) == len(second) == 1
    assert second[0]["n_messages"] == first[0]["n_messages"] + 2  # Hermes knew what was said before

    page = (await over.phone.ask("chat", "chat.sessions.list", {"limit": 5})).payload
    assert page["sessions"][0]["id"] == session
    said = (await over.phone.ask("chat", "chat.sessions.messages", {"session_id": session})).payload["messages"]
    assert [row["role"] for row in said] == ["user", "assistant"] * 2


async def test_two_tools_and_the_text_around_them(over: Over) -> None:
    turn = await send(over.phone, "PRE:let me look\nTOOL:terminal:echo one\nTOOL:read_file:/etc/hostname")
    end = await ended(over.phone, turn["turn_id"])
    assert end["finish"] == "completed"
    assert end["text"].startswith("let me look\n\ntool said:")
    assert shown(over.phone.frames) == end["text"]
    started, completed = events(over.phone, "tool.started"), events(over.phone, "tool.completed")
    assert [tool["tool_name"] for tool in started] == ["terminal", "read_file"]
    assert {tool["tool_id"] for tool in completed} == {tool["tool_id"] for tool in started}
    if over.way in (*DASHBOARDS, "session_stream"):
        results = [tool["result"] for tool in completed if "result" in tool and tool["tool_name"] == "terminal"]
        assert [_read(result)["output"] for result in results] == ["one"]


def _read(result: object) -> dict:
    value = json.loads(result) if isinstance(result, str) else result
    assert isinstance(value, dict)
    return value


async def test_reasoning(over: Over) -> None:
    """Only the dashboard says it while it thinks; the session stream tells it in the end, the others never."""
    thought = "first I consider the options"
    turn = await send(over.phone, f"THINK:{thought}\nSAY:the answer is 42")
    end = await ended(over.phone, turn["turn_id"])
    assert (end["text"], end["finish"]) == ("the answer is 42", "completed")
    if over.way not in (*DASHBOARDS, "session_stream"):
        return
    assert end["reasoning"] == thought
    assert "".join(delta["delta"] for delta in events(over.phone, "reasoning.delta")) == thought
    names = [frame.payload["event"] for frame in over.phone.frames if frame.type == "stream.event"]
    is_live = names.index("reasoning.delta") < names.index("assistant.delta")
    assert is_live == (over.way in DASHBOARDS)


async def test_stop(lab: Lab, over: Over) -> None:
    marker = uuid.uuid4().hex
    turn = await send(over.phone, f"{marker} WORDS:60 DELAY:40")
    await over.phone.event("assistant.delta")
    answer = (await over.phone.ask("chat", "chat.stop", {"turn_id": turn["turn_id"]})).payload
    end = await ended(over.phone, turn["turn_id"])
    if over.way == "session_stream":  # 0.19 cannot
        assert (answer["stopped"], end["finish"]) == (False, "completed")
        assert answer["reason"]
        return
    assert (answer["stopped"], end["finish"]) == (True, "stopped")
    assert "w60" not in end["text"]
    after = await say(over.phone, f"SAY:after the stop {marker}", session_id=end["session_id"])
    assert (after["text"], after["finish"]) == (f"after the stop {marker}", "completed")
    assert lab.times_run(f"{marker} WORDS") == 1


async def test_stop_while_a_tool_runs(over: Over, tmp_path: Path) -> None:
    if over.way == "session_stream":
        return  # as above
    turn = await send(over.phone, "PRE:a while\nTOOL:terminal:sleep 8")
    await over.phone.event("tool.started")
    assert (await over.phone.ask("chat", "chat.stop", {"turn_id": turn["turn_id"]})).payload["stopped"] is True
    end = await ended(over.phone, turn["turn_id"])
    assert end["finish"] == "stopped"
    assert end["text"].startswith("a while")


async def test_the_model_refuses(over: Over) -> None:
    turn = await send(over.phone, "ERROR:400")
    end = await ended(over.phone, turn["turn_id"])
    assert (end["finish"], end["text"]) == ("failed", "")
    assert (end["error"]["code"], end["error"]["layer"]) == ("model_failed", "agent")
    assert "400" in end["error"]["message"]
    after = await say(over.phone, "SAY:fine again", session_id=end["session_id"])
    assert (after["finish"], after["text"]) == ("completed", "fine again")


async def test_the_model_is_down_whatever_the_way(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hermes tries three times, which takes it about 22 s: all ways at once."""
    monkeypatch.setattr("tests.phone.WAIT", 90.0)
    async with AsyncExitStack() as stack:
        phones = {}
        for way in WAYS:
            relay = await stack.enter_async_context(running_over(way, lab, tmp_path / way))
            phones[way] = await relay.connect()
        lab.stop_model()
        try:
            ends = dict(zip(WAYS, await asyncio.gather(*(say(p, "SAY:nobody") for p in phones.values())), strict=True))
        finally:
            await asyncio.to_thread(lab.start_model)
        for way, end in ends.items():
            assert (way, end["finish"], end["error"]["layer"]) == (way, "failed", "agent")
            assert "onnect" in end["error"]["message"], way
            after = await say(phones[way], "SAY:back again", session_id=end["session_id"])
            assert (way, after["text"]) == (way, "back again")


async def test_the_dashboard_is_not_there(lab: Lab, tmp_path: Path) -> None:
    """The dashboard alone being away is no failure: the turn goes over the session stream."""
    async with running_over("dashboard", lab, tmp_path) as relay:
        phone = await relay.connect()
        lab.kill("dashboard")
        await state_is("down", "dashboard", relay)
        try:
            end = await say(phone, f"SAY:without a dashboard {os.getpid()}")
        finally:
            await asyncio.to_thread(lab.restart, "dashboard")
    assert end["finish"] == "completed"
    assert lab.times_run(f"SAY:without a dashboard {os.getpid()}") == 1


async def test_the_credentials_are_wrong(lab: Lab, tmp_path: Path) -> None:
    """Every rejection of the dashboard's socket is a plain 403; the state names what the owner can change."""
    wrong = {"HERMES_DASHBOARD_TOKEN": "not-the-token-0123456789"}
    async with running(settings_for(tmp_path / "a", **(environ("dashboard", lab) | wrong))) as relay:
        phone = await relay.connect()
        await state_is("auth_required", "dashboard", relay)
        assert (await say(phone, "SAY:still works"))["finish"] == "completed"  # over the session stream
