"""Hermes's messaging gateway and a phone, through the plugin: a real Hermes, a real relay, a real socket."""

from __future__ import annotations

import pytest

from tests.hermes.gateway_lab import CURSOR, GatewayLab, Owner
from tests.phone import Frame

pytestmark = pytest.mark.hermes

COMMANDS = {
    "/help": "Hermes Commands",
    "/status": "Hermes Gateway Status",
    "/whoami": "**You** — talaria (DM)",
    "/model": "fake-model",
    "/reasoning": "Reasoning Settings",
    "/commands": "**Commands**",
    "/nosuchcommand": "Unknown command `/nosuchcommand`",
    "/usage": "📊 **Session",
    "/title Plans": "Session title set: **Plans**",
    "/profile": "default",
}


async def test_a_streamed_turn_with_text_and_tools(owner: Owner) -> None:
    sent = await owner.says("PRE:let me run it\nTOOL:terminal:echo hi")
    tool = await owner.until("tool.started")
    assert (tool.payload["tool_name"], tool.payload["preview"]) == ("terminal", "echo hi")
    answer = await owner.hears("done after 1 result(s)")
    assert answer.payload["chat_id"] == "home"
    assert answer.payload["source"] == "reply"
    assert answer.payload["reply_to"] == sent
    versions = [frame for frame in owner.phone.frames if frame.type in ("message.start", "message.update")]
    assert any(frame.payload["message_id"] == answer.payload["message_id"] for frame in versions)
    assert owner.kept() == ["let me run it", answer.payload["text"]]
    assert CURSOR not in str([frame.payload for frame in owner.phone.frames])
    assert "typing" in [frame.type for frame in owner.phone.frames]


async def test_what_the_model_thinks_is_not_its_answer(owner: Owner) -> None:
    await owner.says("THINK:first this\nSAY:the answer is 42")
    answer = await owner.hears("42")
    assert answer.payload["text"] == "the answer is 42"


async def test_a_device_is_not_asked_to_pair_with_hermes(owner: Owner) -> None:
    await owner.says("SAY:welcome")
    first = await owner.hears(lambda frame: True)
    assert first.payload["text"] == "welcome"


async def test_slash_commands_are_answered(owner: Owner) -> None:
    listed = await owner.phone.ask("messages", "commands.list")
    names = {command["name"] for command in listed.payload["commands"]}
    assert {"new", "status", "help", "stop"} <= names
    for command, answer in COMMANDS.items():
        sent = await owner.says(command)
        heard = await owner.hears(lambda frame, sent=sent: frame.payload.get("reply_to") == sent)  # type: ignore[misc]
        assert answer in heard.payload["text"], command


@pytest.mark.parametrize(("choice", "came_of_it"), [("cancel", "ancel"), ("once", "Session reset")])
async def test_a_new_conversation_is_confirmed_on_the_phone(owner: Owner, choice: str, came_of_it: str) -> None:
    await owner.says("/new")
    asked = await owner.until("approval.request", lambda frame: frame.payload["summary"] == "/new")
    assert asked.payload["choices"] == ["once", "always", "cancel"]
    assert asked.payload["chat_id"] == "home"
    resolved = await owner.phone.ask(
        "chat", "approval.respond", approval_id=asked.payload["approval_id"], choice=choice
    )
    assert resolved.payload["outcome"] == ("denied" if choice == "cancel" else "allowed"), resolved
    await owner.hears(came_of_it)


@pytest.mark.parametrize(("choice", "came_of_it"), [("deny", "denied by user"), ("once", "approved by the user")])
async def test_an_approval_is_answered_on_the_phone(owner: Owner, choice: str, came_of_it: str) -> None:
    await owner.says(f"TOOL:terminal:rm -rf /home/hermes/{choice}")
    asked = await owner.until("approval.request", lambda frame: choice in frame.payload["summary"])
    assert asked.payload["summary"] == f"rm -rf /home/hermes/{choice}"
    assert asked.payload["choices"] == ["once", "session", "always", "deny"]
    resolved = await owner.phone.ask(
        "chat", "approval.respond", approval_id=asked.payload["approval_id"], choice=choice
    )
    assert resolved.payload["outcome"] == ("denied" if choice == "deny" else "allowed")
    await owner.hears(came_of_it)


@pytest.mark.parametrize("typed", [False, True], ids=["by button", "typed"])
async def test_a_question_is_answered(owner: Owner, typed: bool) -> None:
    await owner.says('TOOL:clarify:{"question":"Which one?","choices":["red","blue"]}')
    asked = await owner.until("question.ask")
    assert (asked.payload["text"], asked.payload["choices"]) == ("Which one?", ["red", "blue"])
    if typed:
        await owner.says("green, of course")
        answer = "green, of course"
    else:
        answer = "blue"
        question_id = asked.payload["question_id"]
        await owner.phone.ask("chat", "question.answer", question_id=question_id, answer=answer)

    def is_answer(frame: Frame) -> bool:
        return "done after" in frame.payload["text"] and answer in frame.payload["text"]

    await owner.hears(is_answer)


async def test_a_failing_model_is_told_once(owner: Owner) -> None:
    await owner.says("ERROR:400")
    await owner.hears("The model provider failed")
    await owner.says("SAY:well again")
    await owner.hears("well again")
    assert len([text for text in owner.kept() if "provider failed" in text]) == 1


async def test_hermes_send_reaches_the_phone(gateway: GatewayLab, owner: Owner) -> None:
    done = gateway.hermes("send", "--to", "talaria", "from the shell")
    assert done.returncode == 0, done.stderr
    heard = await owner.hears("from the shell")
    assert (heard.payload["source"], heard.payload["chat_id"]) == ("send_message", "home")
    refused = gateway.hermes("send", "--to", "talaria:nowhere", "lost")
    assert refused.returncode != 0
    assert "nowhere" in refused.stdout + refused.stderr
