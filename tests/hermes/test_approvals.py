"""Approvals on a real Hermes: what the phone answers is what happens to the command, and to no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hermes.hermes_lab import APPROVAL_S, Lab
from tests.hermes.raw import dashboard
from tests.hermes.talk import ended, find, kept, send
from tests.hermes.ways import ASKING, running_over
from tests.phone import Frame, Phone
from tests.relay import RunningRelay

pytestmark = pytest.mark.hermes

MARGIN_S = 3  # the relay takes no answer so close to the end of Hermes's own wait


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.phone.WAIT", 30.0)


@dataclass(frozen=True)
class Asked:
    """A turn that asks for leave to run commands, each of which leaves a file behind."""

    relay: RunningRelay
    phone: Phone
    files: Path

    def command(self, n: int) -> str:
        return f"touch {self.files}/ran-{n}; rm -rf {self.files}/nothing-{n}"

    def one(self) -> str:
        return f"PRE:may I\nTOOL:terminal:{self.command(1)}"

    def both(self, pause_s: float) -> str:
        return "TOOL:side_by_side:" + json.dumps(
            {"commands": [self.command(1), self.command(2)], "pause_s": pause_s}
        )  # fmt: skip

    def ran(self) -> list[int]:
        return [n for n in (1, 2) if (self.files / f"ran-{n}").exists()]

    async def request(self, state: str = "open", phone: Phone | None = None, after: tuple[str, ...] = ()) -> Any:
        """The next approval in this state, past those with these ids."""
        found = await find(
            phone or self.phone, "approval.request",
            match=lambda f: f.payload["state"] == state and f.payload["approval_id"] not in after,
        )  # fmt: skip
        assert found.seq is not None
        return found.payload

    async def resolved(self, request: dict[str, Any], phone: Phone | None = None) -> dict[str, Any]:
        """The kept frame that says what became of it."""
        id = request["approval_id"]
        found = await find(
            phone or self.phone,
            "approval.resolved",
            match=lambda f: f.payload["approval_id"] == id and f.seq is not None,
        )
        return found.payload

    async def answer(self, request: dict[str, Any], choice: str) -> Frame:
        return await self.phone.ask("chat", "approval.respond", approval_id=request["approval_id"], choice=choice)


@pytest.fixture(params=ASKING)
async def asked(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> AsyncIterator[Asked]:
    async with running_over(request.param, lab, tmp_path / "data") as relay:
        yield Asked(relay, await relay.connect(), tmp_path)


@pytest.fixture
async def on_dashboard(lab: Lab, tmp_path: Path) -> AsyncIterator[Asked]:
    async with running_over("dashboard", lab, tmp_path / "data") as relay:
        yield Asked(relay, await relay.connect(), tmp_path)


async def test_allowed(asked: Asked) -> None:
    tablet = await asked.relay.connect()
    turn = await send(asked.phone, asked.one())
    request = await asked.request()
    assert (request["turn_id"], request["tool"]) == (turn["turn_id"], "terminal")
    assert asked.command(1) in request["summary"]
    assert request["choices"] == ["once", "session", "always", "deny"]
    assert request["expires_at"] - request["asked_at"] == pytest.approx(APPROVAL_S - MARGIN_S, abs=0.5)
    assert (await asked.request(phone=tablet))["approval_id"] == request["approval_id"]
    assert asked.ran() == []

    answer = await asked.answer(request, "once")
    assert (answer.type, answer.payload["outcome"]) == ("approval.resolved", "allowed")
    told = await asked.resolved(request, tablet)
    assert (told["outcome"], told["choice"]) == ("allowed", "once")
    assert (await ended(asked.phone, turn["turn_id"]))["finish"] == "completed"
    assert asked.ran() == [1]
    late = await asked.relay.connect()
    assert late.auth["approvals"] == []


async def test_denied(asked: Asked) -> None:
    turn = await send(asked.phone, asked.one())
    request = await asked.request()
    answer = await asked.answer(request, "deny")
    assert answer.payload["outcome"] == "denied"
    end = await ended(asked.phone, turn["turn_id"])
    assert end["finish"] == "completed"
    assert "BLOCKED" in end["text"]
    assert asked.ran() == []


async def test_for_the_session_asks_once(asked: Asked) -> None:
    """For as long as Hermes itself holds a session for one: over runs that is this turn."""
    turn = await send(asked.phone, f"TOOL:terminal:{asked.command(1)}\nTOOL:terminal:{asked.command(2)}")
    await asked.answer(await asked.request(), "session")
    assert (await ended(asked.phone, turn["turn_id"]))["finish"] == "completed"
    assert asked.ran() == [1, 2]
    assert len({one["approval_id"] for one in kept(asked.phone, "approval.request")}) == 1


async def test_one_after_another_in_one_answer(asked: Asked) -> None:
    turn = await send(asked.phone, f"TOOL:terminal:{asked.command(1)}\nTOOL:terminal:{asked.command(2)}")
    first = await asked.request()
    assert (await asked.answer(first, "deny")).payload["outcome"] == "denied"
    second = await asked.request(after=(first["approval_id"],))
    assert (await asked.answer(second, "once")).payload["outcome"] == "allowed"
    assert (await ended(asked.phone, turn["turn_id"]))["finish"] == "completed"
    assert asked.ran() == [2]


async def test_two_at_once_are_answered_in_order(asked: Asked) -> None:
    turn = await send(asked.phone, asked.both(0.3))
    first = await asked.request()
    second = await asked.request("waiting")
    refused = await asked.answer(second, "once")
    assert (refused.type, refused.payload["code"]) == ("error", "approval_waiting")
    assert (await asked.answer(first, "deny")).payload["outcome"] == "denied"
    opened = await asked.request(after=(first["approval_id"],))
    assert opened["approval_id"] == second["approval_id"]
    assert (await asked.answer(opened, "once")).payload["outcome"] == "allowed"
    end = await ended(asked.phone, turn["turn_id"])
    assert '["blocked", "ran"]' in end["text"].replace("\\", "")
    assert asked.ran() == [2]


async def over_all(lab: Lab, tmp_path: Path, stack: AsyncExitStack) -> list[Asked]:
    """One of each way, to wait out Hermes's patience only once."""
    found = []
    for way in ASKING:
        (tmp_path / way).mkdir()
        relay = await stack.enter_async_context(running_over(way, lab, tmp_path / way / "data"))
        found.append(Asked(relay, await relay.connect(), tmp_path / way))
    return found


async def nobody_answers(asked: Asked) -> None:
    turn = await send(asked.phone, asked.one())
    request = await asked.request()
    assert (await asked.resolved(request))["outcome"] == "expired"
    late = await asked.answer(request, "once")  # Hermes still waits now, but not long enough to be sure
    assert (late.type, late.payload["code"]) == ("error", "approval_expired")
    end = await ended(asked.phone, turn["turn_id"])
    assert end["finish"] == "completed"
    assert "timed out" in end["text"]
    assert len(kept(asked.phone, "approval.resolved")) == 1
    assert asked.ran() == []


async def test_nobody_answers_and_then_too_late(lab: Lab, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        await gathered(nobody_answers(asked) for asked in await over_all(lab, tmp_path, stack))


async def too_late_for_the_first_of_two(asked: Asked) -> None:
    """Hermes resolves the oldest whatever is meant: a late answer to the first must not reach the second."""
    turn = await send(asked.phone, asked.both(pause_s=6))
    first = await asked.request()
    second = await asked.request("waiting")
    assert (await asked.resolved(first))["outcome"] == "expired"
    late = await asked.answer(first, "once")
    assert late.payload["code"] == "approval_expired"
    early = await asked.answer(second, "once")  # Hermes may still have the first
    assert early.payload["code"] == "approval_waiting"
    assert asked.ran() == []

    opened = await asked.request(after=(first["approval_id"],))
    assert opened["approval_id"] == second["approval_id"]
    assert opened["asked_at"] - first["asked_at"] == pytest.approx(6, abs=1.5)
    late = await asked.answer(first, "once")  # now Hermes has only the second
    assert late.payload["code"] in ("approval_expired", "approval_closed")
    assert asked.ran() == []
    assert (await asked.answer(opened, "once")).payload["outcome"] == "allowed"
    end = await ended(asked.phone, turn["turn_id"])
    assert '["blocked", "ran"]' in end["text"].replace("\\", "")
    assert asked.ran() == [2]


async def test_too_late_for_the_first_of_two(lab: Lab, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        await gathered(too_late_for_the_first_of_two(asked) for asked in await over_all(lab, tmp_path, stack))


async def gathered(work: Iterable[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)


async def test_answered_on_the_dashboard_itself(lab: Lab, on_dashboard: Asked) -> None:
    turn = await send(on_dashboard.phone, on_dashboard.one())
    request = await on_dashboard.request()
    async with dashboard(lab) as page:
        live = await page.live(request["session_id"])
        assert (await page.call("approval.respond", session_id=live, choice="once"))["resolved"] == 1
    assert (await on_dashboard.resolved(request))["outcome"] == "resolved_elsewhere"
    refused = await on_dashboard.answer(request, "deny")
    assert refused.payload["code"] == "approval_closed"
    assert (await ended(on_dashboard.phone, turn["turn_id"]))["finish"] == "completed"
    assert on_dashboard.ran() == [1]


async def test_answered_where_its_events_went_too_and_the_next_one_waits(lab: Lab, on_dashboard: Asked) -> None:
    """The phone still shows the first. Its answer must not reach the second, which no phone was shown."""
    both = "\n".join(f"TOOL:terminal:{on_dashboard.command(n)}" for n in (1, 2))
    await send(on_dashboard.phone, both)
    request = await on_dashboard.request()
    async with dashboard(lab) as page:
        live = (await page.call("session.resume", session_id=request["session_id"], cols=80))["session_id"]
        await page.call("approval.respond", session_id=live, choice="deny")
        async with asyncio.timeout(30):
            while not any(event["type"] == "approval.request" for event in page.events):
                await page.live(request["session_id"])
        refused = await on_dashboard.answer(request, "once")
        assert refused.payload["code"] == "approval_closed"
        assert (await on_dashboard.resolved(request))["outcome"] == "resolved_elsewhere"
        assert (await page.call("approval.respond", session_id=live, choice="deny"))["resolved"] == 1
    assert on_dashboard.ran() == []


async def test_the_first_answer_of_any_device_wins(asked: Asked) -> None:
    tablet = await asked.relay.connect()
    turn = await send(asked.phone, asked.one())
    request = await asked.request()
    await asked.request(phone=tablet)
    answers = await asyncio.gather(
        asked.answer(request, "deny"),
        tablet.ask("chat", "approval.respond", approval_id=request["approval_id"], choice="once"),
    )
    won = [frame.payload["outcome"] for frame in answers if frame.type == "approval.resolved"]
    lost = [frame.payload["code"] for frame in answers if frame.type == "error"]
    assert (len(won), lost) == (1, ["approval_closed"])
    assert (await ended(asked.phone, turn["turn_id"]))["finish"] == "completed"
    assert asked.ran() == ([1] if won == ["allowed"] else [])


async def test_a_device_that_comes_later_sees_it_and_answers(asked: Asked) -> None:
    turn = await send(asked.phone, asked.one())
    request = await asked.request()
    late = await asked.relay.connect()
    assert [one["approval_id"] for one in late.auth["approvals"]] == [request["approval_id"]]
    answer = await late.ask("chat", "approval.respond", approval_id=request["approval_id"], choice="once")
    assert answer.payload["outcome"] == "allowed"
    assert (await ended(asked.phone, turn["turn_id"]))["finish"] == "completed"
    assert asked.ran() == [1]


async def test_stopped_while_it_waits(asked: Asked) -> None:
    turn = await send(asked.phone, asked.one())
    request = await asked.request()
    assert (await asked.phone.ask("chat", "chat.stop", {"turn_id": turn["turn_id"]})).payload["stopped"] is True
    assert (await asked.resolved(request))["outcome"] == "resolved_elsewhere"
    assert (await ended(asked.phone, turn["turn_id"]))["finish"] == "stopped"
    assert asked.ran() == []


async def test_the_relay_restarts_while_it_waits(lab: Lab, tmp_path: Path) -> None:
    """The same approval, still answerable: Hermes waits, and does not show it again."""
    async with running_over("dashboard", lab, tmp_path / "data") as relay:
        before = Asked(relay, await relay.connect(), tmp_path)
        turn = await send(before.phone, before.one())
        request = await before.request()
        token = before.phone.token
    async with running_over("dashboard", lab, tmp_path / "data") as relay:
        after = Asked(relay, await relay.connect(session_token=token), tmp_path)
        assert [one["approval_id"] for one in after.phone.auth["approvals"]] == [request["approval_id"]]
        assert (await after.answer(request, "once")).payload["outcome"] == "allowed"
        assert (await ended(after.phone, turn["turn_id"]))["finish"] == "completed"
        assert after.ran() == [1]


@pytest.mark.parametrize("way", ["session_stream", "completions"])
async def test_a_way_that_cannot_ask_says_so_to_the_model(lab: Lab, tmp_path: Path, way: str) -> None:
    async with running_over(way, lab, tmp_path / "data") as relay:
        asked = Asked(relay, await relay.connect(), tmp_path)
        end = await ended(asked.phone, (await send(asked.phone, asked.one()))["turn_id"])
        assert end["finish"] == "completed"
        assert kept(asked.phone, "approval.request") == []
        assert asked.ran() == []
