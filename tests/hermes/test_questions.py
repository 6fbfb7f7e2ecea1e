"""Questions of a real Hermes, which only its dashboard asks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.raw import dashboard
from tests.hermes.talk import ended, find, send, shown
from tests.hermes.ways import DASHBOARDS, running_over
from tests.phone import Phone
from tests.relay import RunningRelay

pytestmark = pytest.mark.hermes

CHOICES = ["red", "blue"]


@pytest.fixture(params=DASHBOARDS)
async def relay(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with running_over(request.param, lab, tmp_path) as relay:
        yield relay


def clarify(**args: Any) -> str:
    return "TOOL:clarify:" + json.dumps({"question": "Which colour?"} | args)


async def asked(phone: Phone) -> dict[str, Any]:
    frame = await phone.until("question.ask")
    assert frame.seq is not None
    return frame.payload


@pytest.mark.parametrize(("choices", "answer"), [(CHOICES, "blue"), (CHOICES, "neither, green"), (None, "all of them")])
async def test_answered(relay: RunningRelay, choices: list[str] | None, answer: str) -> None:
    phone, tablet = await relay.connect(), await relay.connect()
    turn = await send(phone, clarify(choices=choices) if choices else clarify())
    question = await asked(phone)
    assert (question["turn_id"], question["text"]) == (turn["turn_id"], "Which colour?")
    assert question.get("choices") == choices
    late = await relay.connect()
    assert [one["question_id"] for one in late.auth["questions"]] == [question["question_id"]]

    told = await phone.ask("chat", "question.answer", question_id=question["question_id"], answer=answer)
    assert (told.type, told.payload["outcome"]) == ("question.closed", "answered")
    closed = (await find(tablet, "question.closed")).payload
    assert (closed["question_id"], closed["answer"]) == (question["question_id"], answer)
    end = await ended(phone, turn["turn_id"])
    assert (end["finish"], answer in end["text"]) == ("completed", True)
    again = await phone.ask("chat", "question.answer", question_id=question["question_id"], answer="red")
    assert again.payload["code"] == "question_closed"


async def test_stopped_while_it_waits(relay: RunningRelay) -> None:
    phone = await relay.connect()
    turn = await send(phone, clarify(choices=CHOICES))
    question = await asked(phone)
    assert (await phone.ask("chat", "chat.stop", {"turn_id": turn["turn_id"]})).payload["stopped"] is True
    assert (await find(phone, "question.closed")).payload["question_id"] == question["question_id"]
    assert (await ended(phone, turn["turn_id"]))["finish"] == "stopped"


async def test_another_client_takes_it_over_and_stops_it(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on the relay hears nothing of it: the end is looked for."""
    monkeypatch.setattr("app.hermes.dashboard.dashboard.QUIET_S", 0.3)
    monkeypatch.setattr("app.hermes.dashboard.dashboard.LOOK_S", (0.2, 1.0))
    async with running_over("dashboard", lab, tmp_path) as relay:
        phone = await relay.connect()
        turn = await send(phone, clarify(choices=CHOICES))
        question = await asked(phone)
        async with dashboard(lab) as page:
            taken = await page.call("session.resume", session_id=question["session_id"])
            assert (taken["running"], taken["status"]) == (True, "waiting")
            await page.call("session.interrupt", session_id=taken["session_id"])
            end = await ended(phone, turn["turn_id"])
        assert end["finish"] in ("stopped", "interrupted")
        assert (await find(phone, "question.closed")).payload["outcome"] == "resolved_elsewhere"


async def test_another_client_takes_the_events_of_a_turn(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.hermes.dashboard.dashboard.QUIET_S", 0.3)
    monkeypatch.setattr("app.hermes.dashboard.dashboard.LOOK_S", (0.2, 1.0))
    async with running_over("dashboard", lab, tmp_path) as relay:
        phone = await relay.connect()
        turn = await send(phone, f"WORDS:40 DELAY:50 HALF:{tmp_path / 'taken'}")
        session = (await phone.event("assistant.delta")).payload["session_id"]
        async with dashboard(lab) as page:
            assert (await page.call("session.resume", session_id=session))["running"] is True
            (tmp_path / "taken").touch()
            end = await ended(phone, turn["turn_id"])
            assert (end["finish"], end["text"]) == ("completed", " ".join(f"w{n}" for n in range(1, 41)))
            assert shown(phone.frames) == end["text"]
            await page.call("session.active_list")
            assert any(event["type"] == "message.complete" for event in page.events)  # it was theirs to the end
