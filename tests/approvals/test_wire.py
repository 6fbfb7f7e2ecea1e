"""Over real sockets: who is told, who may answer, and what comes back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from app.approvals.ask import Ask
from app.hermes.errors import UpstreamUnreachable
from app.sessions.operator import LinkToken, OperatorToken
from tests.older import connect as connect_older
from tests.phone import Phone
from tests.relay import RunningRelay


@dataclass(eq=False)
class Hermes:
    """Takes what it gets. `gate` holds answers up."""

    said: list[str] = field(default_factory=list)
    fails: Exception | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def waits_for(self, tool_id: str) -> bool:
        return True

    async def decide(self, choice: str) -> int:
        return int(await self.answer("", choice))

    async def answer(self, ref: str, text: str) -> bool:
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        self.said.append(text)
        return True


@pytest.fixture
def hermes() -> Hermes:
    return Hermes()


def approval(summary: str = "rm -r build", **more: Any) -> Ask:
    fields: dict[str, Any] = {"choices": ("once", "deny"), "turn_id": "t1", "session_id": "s1", "tool": "terminal"}
    return Ask("s1", "approval", summary, 600.0, **fields | more)


def question(text: str = "Which branch?") -> Ask:
    return Ask("s1", "question", text, 600.0, turn_id="t1", session_id="s1", choices=("main", "dev"), ref="r1")


async def test_an_approval_reaches_every_device_and_its_end_too(relay: RunningRelay, hermes: Hermes) -> None:
    phone, tablet = await relay.connect(), await relay.connect()
    relay.relay.approvals.asked(approval(), hermes)
    asked = await phone.until("approval.request")
    assert (await tablet.until("approval.request")).payload == asked.payload
    assert (asked.channel, asked.seq, asked.payload["state"]) == ("chat", 1, "open")
    id = asked.payload["approval_id"]
    answer = await phone.ask("chat", "approval.respond", approval_id=id, choice="once")
    resolved = {
        "approval_id": id, "turn_id": "t1", "outcome": "allowed", "choice": "once", "by": phone.auth["device_id"],
    }  # fmt: skip
    assert (answer.type, answer.payload, answer.seq) == ("approval.resolved", resolved, None)
    for device in (phone, tablet):
        device.read = 0
        kept = await device.until("approval.resolved", lambda frame: frame.seq is not None)
        assert (kept.payload, kept.seq) == (resolved, 2)
    assert hermes.said == ["once"]


async def test_a_device_that_connects_later_is_told(relay: RunningRelay, hermes: Hermes) -> None:
    first, owner = await relay.connect(), await relay.connect()
    await first.hang_up()
    relay.relay.approvals.asked(approval("one"), hermes)
    relay.relay.approvals.asked(approval("two"), hermes)
    relay.relay.approvals.asked(question(), hermes)
    await owner.until("question.ask")
    watching = await relay.connect()  # new: it has no mailbox of that time
    back = await relay.connect(session_token=first.token)
    await back.until("synced")
    kept = [frame.payload for frame in back.frames if frame.seq is not None]
    for phone in (watching, back):
        listed = phone.auth["approvals"], phone.auth["questions"]
        assert [[said["state"] for said in listed[0]], len(listed[1])] == [["open", "waiting"], 1]
        assert [*listed[0], *listed[1]] == kept
    id = watching.auth["questions"][0]["question_id"]
    closed = await watching.ask("chat", "question.answer", question_id=id, answer="a third one")
    assert (closed.type, closed.payload["outcome"]) == ("question.closed", "answered")
    assert (await back.until("question.closed")).payload == closed.payload
    assert hermes.said == ["a third one"]


async def test_two_devices_race_and_the_loser_is_told(relay: RunningRelay, hermes: Hermes) -> None:
    phone, tablet = await relay.connect(), await relay.connect()
    relay.relay.approvals.asked(approval(), hermes)
    id = (await phone.until("approval.request")).payload["approval_id"]
    hermes.gate.clear()
    await phone.send("chat", "approval.respond", approval_id=id, choice="once")
    await phone.ping()  # nobody waits behind an answer that is on its way
    frame = await tablet.send("chat", "approval.respond", approval_id=id, choice="deny")
    await tablet.ping()
    hermes.gate.set()
    refused = await tablet.until("error")
    assert (refused.id, refused.payload["code"]) == (frame, "approval_closed")
    assert (await phone.until("approval.resolved")).payload["outcome"] == "allowed"
    assert hermes.said == ["once"]


async def test_a_repeated_frame_is_answered_again_and_not_sent_again(relay: RunningRelay, hermes: Hermes) -> None:
    phone = await relay.connect()
    relay.relay.approvals.asked(approval(), hermes)
    id = (await phone.until("approval.request")).payload["approval_id"]
    answers = [await phone.ask("chat", "approval.respond", approval_id=id, choice="deny", id="same") for _ in range(3)]
    assert answers[0].payload["outcome"] == "denied"
    assert all(answer.payload == answers[0].payload for answer in answers)
    other = await phone.ask("chat", "approval.respond", approval_id=id, choice="once", id="same")
    assert other.payload["code"] == "id_reused"
    assert hermes.said == ["deny"]


@pytest.mark.parametrize(
    ("type_", "payload", "code"),
    [
        ("approval.respond", {"approval_id": "none", "choice": "once"}, "approval_unknown"),
        ("approval.respond", {"approval_id": "$approval", "choice": "always"}, "choice_unknown"),
        ("approval.respond", {"approval_id": "$second", "choice": "once"}, "approval_waiting"),
        ("approval.respond", {"approval_id": "$question", "choice": "main"}, "approval_unknown"),
        ("approval.respond", {"approval_id": "$approval"}, "payload_invalid"),
        ("approval.respond", {"approval_id": "$approval", "choice": ["once"]}, "payload_invalid"),
        ("question.answer", {"question_id": "none", "answer": "x"}, "question_unknown"),
        ("question.answer", {"question_id": "$approval", "answer": "once"}, "question_unknown"),
        ("question.answer", {"question_id": "$question", "answer": "x" * 65_537}, "payload_invalid"),
        ("question.answer", {"question_id": "$question", "answer": ""}, "payload_invalid"),
    ],
)
async def test_refusals_are_system_errors_and_reach_nobody(
    relay: RunningRelay, hermes: Hermes, type_: str, payload: dict[str, Any], code: str
) -> None:
    phone = await relay.connect()
    for ask in (approval(), approval("second"), question()):
        relay.relay.approvals.asked(ask, hermes)
    ids = {
        "$approval": (await phone.until("approval.request")).payload["approval_id"],
        "$second": (await phone.until("approval.request")).payload["approval_id"],
        "$question": (await phone.until("question.ask")).payload["question_id"],
    }
    said = {name: ids.get(value, value) if isinstance(value, str) else value for name, value in payload.items()}
    answer = await phone.ask("chat", type_, said)
    assert (answer.channel, answer.type, answer.payload["code"]) == ("system", "error", code)
    assert answer.payload["ref"] == answer.id
    assert hermes.said == []


async def test_what_was_surely_not_sent_says_so_and_stays_open(relay: RunningRelay, hermes: Hermes) -> None:
    phone = await relay.connect()
    relay.relay.approvals.asked(approval(), hermes)
    id = (await phone.until("approval.request")).payload["approval_id"]
    hermes.fails = UpstreamUnreachable()
    answer = await phone.ask("chat", "approval.respond", approval_id=id, choice="once")
    assert (answer.payload["code"], answer.payload["layer"]) == ("upstream_unreachable", "upstream")
    assert answer.payload["retryable"] is True
    hermes.fails = None
    assert (await phone.ask("chat", "approval.respond", approval_id=id, choice="once")).type == "approval.resolved"


async def test_without_the_chat_grant_nothing_is_told_and_nothing_taken(relay: RunningRelay, hermes: Hermes) -> None:
    owner = await relay.connect()
    relay.relay.approvals.asked(approval(), hermes)
    relay.relay.approvals.asked(question(), hermes)
    id = (await owner.until("approval.request")).payload["approval_id"]
    asked = (await owner.until("question.ask")).payload["question_id"]
    offer = await relay.relay.pairing.mint(grants={"terminal": None})
    stranger = await relay.connect(pairing_code=offer.code)
    assert (stranger.auth["approvals"], stranger.auth["questions"]) == ([], [])
    for type_, said in (
        ("approval.respond", {"approval_id": id, "choice": "once"}),
        ("question.answer", {"question_id": asked, "answer": "main"}),
    ):
        assert (await stranger.ask("chat", type_, said)).payload["code"] == "grant_missing"
    assert hermes.said == []


async def test_neither_the_operator_nor_the_link_can_answer(relay: RunningRelay, hermes: Hermes) -> None:
    """Their tokens lie on the host, where the agent may find them. There is no route, and no socket for them."""
    owner = await relay.connect()
    relay.relay.approvals.asked(approval(), hermes)
    id = (await owner.until("approval.request")).payload["approval_id"]
    data_dir = relay.relay.settings.server.data_dir
    async with httpx.AsyncClient(base_url=relay.url) as http:
        for kind in (OperatorToken, LinkToken):
            token = kind.load(data_dir).read()
            socket = await relay.open()
            answer = await socket.ask("system", "auth", {"session_token": token})
            assert answer.type == "auth.fail"
            headers = {"Authorization": f"Bearer {token}"}
            bare = await relay.open(additional_headers=headers)
            assert (await bare.ask("system", "auth", {})).type == "auth.fail"
            said = {"approval_id": id, "choice": "once"}
            for path in (f"/approvals/{id}", "/approvals", "/approval/respond", f"/v1/runs/{id}/approval"):
                assert (await http.post(path, json=said, headers=headers)).status_code in (403, 404, 405)
        paths = (await http.get("/openapi.json")).json()["paths"]
    assert not [path for path in paths if "approval" in path or "question" in path]
    assert hermes.said == []
    assert [said["state"] for said in relay.relay.approvals.open()[0]] == ["open"]


async def test_an_older_client_is_not_disturbed(relay: RunningRelay, hermes: Hermes) -> None:
    phone: Phone = await connect_older(relay)
    relay.relay.approvals.asked(approval(), hermes)
    relay.relay.approvals.ended("t1")
    await phone.ping()
    assert [frame.type for frame in phone.frames if frame.channel == "chat"] == []
