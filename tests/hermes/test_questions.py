"""Questions of a real Hermes, which only its dashboard asks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.raw import dashboard
from tests.hermes.talk import ended, find, send
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


async def test_answered_on_the_dashboard_itself(lab: Lab, tmp_path: Path) -> None:
    async with running_over("dashboard", lab, tmp_path) as relay:
        phone = await relay.connect()
        turn = await send(phone, clarify(choices=CHOICES))
        question = await asked(phone)
        async with dashboard(lab) as page:
            shown = await page.call("session.resume", session_id=question["session_id"])
            assert shown["status"] == "waiting"
            # what is asked is not shown again: its own page knows the id from the event
            await page.call("session.interrupt", session_id=shown["session_id"])
        end = await ended(phone, turn["turn_id"])
        assert end["finish"] in ("stopped", "interrupted")
        assert (await find(phone, "question.closed")).payload["outcome"] == "resolved_elsewhere"
