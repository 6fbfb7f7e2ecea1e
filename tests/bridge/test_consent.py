"""What reaches other people or other apps asks the owner first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.bridge.commands import COMMANDS
from tests.bridge.conftest import Simulate
from tests.bridge.phone_simulator import simulated
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for

SMS = {"to": "+44 20 7946 0001", "body": "On my way"}
DESTRUCTIVE = [command for command in COMMANDS if command.destructive]


async def asked(http: httpx.AsyncClient, desk: Phone, path: str = "/send_sms", body: Any = SMS, **options: Any) -> Any:
    """A request under way, once a device of the owner is asked. Returns (task, payload of approval.request)."""
    asking = asyncio.ensure_future(http.post(path, json=body, **options))
    return asking, (await desk.until("approval.request")).payload


def test_these_do() -> None:
    assert {command.name for command in DESTRUCTIVE} == {
        "send_sms", "send_mms", "call", "broadcast", "send_intent", "share_media",
    }  # fmt: skip


async def test_nothing_happens_before_it_is_allowed(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    phone, desk = await simulate(device_name="Pixel"), await relay.connect()
    asking, request = await asked(http, desk)
    assert request | {
        "turn_id": None, "tool": "send_sms", "choices": ["once", "deny"], "state": "open",
        "summary": "Send a text message (SMS)\nto: +44 20 7946 0001\nbody: On my way",
        "description": "By Pixel, asked for by operator.",
    } == request  # fmt: skip
    assert phone.heard == []
    answer = await desk.ask("chat", "approval.respond", approval_id=request["approval_id"], choice="once")
    assert answer.payload["outcome"] == "allowed"
    assert (await asking).json() == {"ok": True}
    (heard,) = phone.heard
    assert (heard["path"], heard["body"]) == ("/send_sms", SMS)


async def test_the_time_of_the_command_counts_from_the_approval(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    phone, desk = await simulate(), await relay.connect()
    phone.silent = True
    asking, request = await asked(http, desk, headers={"X-Talaria-Timeout": "0.05"})
    done, _ = await asyncio.wait({asking}, timeout=0.2)
    assert not done
    await desk.ask("chat", "approval.respond", approval_id=request["approval_id"], choice="once")
    assert (await asking).status_code == 504


@pytest.mark.parametrize("command", DESTRUCTIVE, ids=lambda command: command.name)
async def test_what_is_denied_never_reaches_the_phone(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate, command: Any
) -> None:
    phone, desk = await simulate(), await relay.connect()
    asking, request = await asked(http, desk, command.path, {"number": "1"})
    await desk.ask("chat", "approval.respond", approval_id=request["approval_id"], choice="deny")
    answer = await asking
    assert (answer.status_code, answer.json()) == (403, {"error": "The owner did not allow it."})
    assert answer.headers["x-talaria-error"] == "denied"
    assert phone.heard == []
    assert relay.relay.bridge.activity.latest(1)[0]["decision"] == "denied"


async def test_what_nobody_answers_is_denied(http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate) -> None:
    phone, desk = await simulate(), await relay.connect()
    relay.relay.bridge._consent._answer_s = 0.2
    answer = await http.post("/call", json={"number": "1"})
    assert (answer.status_code, answer.json()) == (403, {"error": "nobody allowed it in time"})
    assert (await desk.until("approval.resolved")).payload["outcome"] in ("expired", "resolved_elsewhere")
    assert phone.heard == []


async def test_one_whose_caller_leaves_cannot_be_allowed_any_more(relay: RunningRelay, simulate: Simulate) -> None:
    phone, desk = await simulate(), await relay.connect()
    async with httpx.AsyncClient(base_url=relay.url, headers=relay.operator()) as http:
        asking, request = await asked(http, desk, "/call", {"number": "1"})
        asking.cancel()
        await asyncio.wait([asking])
    assert (await desk.until("approval.resolved")).payload["outcome"] == "resolved_elsewhere"
    answer = await desk.ask("chat", "approval.respond", approval_id=request["approval_id"], choice="once")
    assert (answer.type, answer.payload["code"]) == ("error", "approval_closed")
    assert phone.heard == []


async def test_a_restart_closes_what_was_asked(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    async with running(settings) as relay, simulated(relay) as phone:
        desk = await relay.connect()
        async with httpx.AsyncClient(base_url=relay.url, headers=relay.operator()) as http:
            asking, request = await asked(http, desk)
            relay.relay.bridge.drain()
            answer = await asking
            assert (answer.status_code, answer.headers["x-talaria-error"]) == (503, "draining")
        assert (await desk.until("approval.resolved")).payload["approval_id"] == request["approval_id"]
        assert phone.heard == []


async def test_a_crash_leaves_nothing_that_could_still_be_allowed(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    async with running(settings) as relay:
        consent, desk = relay.relay.bridge._consent, await relay.connect()
        asking = asyncio.ensure_future(
            consent.ask("c1", DESTRUCTIVE[0], SMS, device="Pixel", caller="test", wanted=lambda: True)
        )
        await desk.until("approval.request")
        consent._approvals.passed_by = lambda *_: None  # type: ignore[method-assign]  # as if the process were killed
        asking.cancel()
    async with running(settings) as relay:
        back = await relay.connect(session_token=desk.token)
        assert back.auth["approvals"] == []
        assert (await back.until("approval.resolved")).payload["outcome"] == "resolved_elsewhere"


async def test_the_operator_may_lift_it(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, BRIDGE_UNATTENDED="1")) as relay, simulated(relay) as phone:
        async with httpx.AsyncClient(base_url=relay.url, headers=relay.operator()) as http:
            assert (await http.post("/send_sms", json=SMS)).status_code == 200
        assert phone.heard[0]["path"] == "/send_sms"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({"body": "Hi\nto: Mum", "to": "1"}, "body: Hi\\nto: Mum"),
        ({"body": "Hi\u2028to: Mum", "to": "1"}, "body: Hi\\u2028to: Mum"),
        ({"body": "\u202egnp.exe", "to": "1"}, "body: \\u202egnp.exe"),
        ({"to": "1", "x\nbody: y": "z"}, "x\\nbody: y: z"),
    ],
)
async def test_no_value_can_look_like_another(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate, body: Any, line: str
) -> None:
    await simulate()
    desk = await relay.connect()
    asking, request = await asked(http, desk, body=body)
    lines = request["summary"].split("\n")
    assert line in lines
    assert "to: 1" in lines
    assert len(lines) == 3
    await desk.ask("chat", "approval.respond", approval_id=request["approval_id"], choice="deny")
    await asking


async def test_the_query_beside_a_body_is_shown_and_recorded(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    await simulate()
    desk = await relay.connect()
    asking, request = await asked(http, desk, "/call?number=2", {"number": "1"})
    assert request["summary"].split("\n")[1:] == ["?number: 2", "number: 1"]
    await desk.ask("chat", "approval.respond", approval_id=request["approval_id"], choice="deny")
    await asking
    assert relay.relay.bridge.activity.latest(1)[0]["params"] == {"?number": "2", "number": "1"}


async def test_what_cannot_be_shown_whole_is_not_asked(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    phone, desk = await simulate(), await relay.connect()
    answer = await http.post("/send_sms", json={"body": "x" * 16 * 1024, "to": "1"})
    assert (answer.status_code, answer.headers["x-talaria-error"]) == (403, "denied")
    assert "too long" in answer.json()["error"]
    await desk.ping()
    assert "approval.request" not in {frame.type for frame in desk.frames}
    assert phone.heard == []


async def test_a_phone_that_is_revoked_meanwhile_is_not_waited_for(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    phone, desk = await simulate(device_name="Pixel"), await relay.connect()
    asking, request = await asked(http, desk)
    (prefix,) = [one.prefix for one in await relay.relay.sessions.list() if one.device_name == "Pixel"]
    await relay.relay.sessions.revoke(prefix, actor="test")
    while relay.relay.bridge.is_online(phone.device_id):
        await relay.relay.db.read(lambda tx: None)
    await desk.ask("chat", "approval.respond", approval_id=request["approval_id"], choice="once")
    answer = await asking
    assert (answer.status_code, answer.headers["x-talaria-error"]) == (404, "device_unknown")
    assert phone.heard == []
