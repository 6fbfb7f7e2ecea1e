"""What the gateway asks: shown to every device, answered once over the link, and always ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from app.hermes.link.errors import GatewayAway
from tests import older
from tests.link import Plugin, Spool, linked
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for


async def ask(plugin: Plugin, ask_id: str, kind: str = "approval", text: str = "rm -rf /", **said: object) -> None:
    said = {"chat_id": "home", "timeout_s": 60} | said
    answer = await plugin.durable("ask", ask_id=ask_id, kind=kind, text=text, **said)
    assert answer["type"] == "ok", answer


async def respond(phone: Phone, approval_id: str, choice: str) -> str:
    """The id of the frame; the answer comes when the plugin has confirmed it."""
    return await phone.send("chat", "approval.respond", approval_id=approval_id, choice=choice)


async def test_an_approval_is_answered_over_the_link(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    tablet = await relay.connect()
    choices = ["once", "session", "always", "deny"]
    await ask(plugin, "a1", description="delete in root path", choices=choices, thread_id="t1")
    asked = (await tablet.until("approval.request")).payload
    assert (asked["summary"], asked["description"], asked["choices"]) == ("rm -rf /", "delete in root path", choices)
    assert (asked["turn_id"], asked["chat_id"], asked["thread_id"], asked["tool"]) == (None, "home", "t1", "terminal")
    await respond(phone, asked["approval_id"], "session")
    answer = await plugin.answered(resolved=1)
    assert (answer["ask_id"], answer["choice"]) == ("a1", "session")
    closed = (await tablet.until("approval.resolved")).payload
    assert (closed["outcome"], closed["by"]) == ("allowed", phone.auth["device_id"])


async def test_approvals_of_a_thread_are_answered_in_order(phone: Phone, plugin: Plugin) -> None:
    for ask_id in ("a1", "a2"):
        await ask(plugin, ask_id, text=ask_id)
    await ask(plugin, "c1", kind="confirm", text="/new")
    first, second, confirm = [(await phone.until("approval.request")).payload for _ in range(3)]
    assert [one["state"] for one in (first, second, confirm)] == ["open", "waiting", "open"]
    assert confirm["choices"] == ["once", "always", "cancel"]
    refused = await phone.ask("chat", "approval.respond", approval_id=second["approval_id"], choice="once")
    assert refused.payload["code"] == "approval_waiting"
    await respond(phone, confirm["approval_id"], "cancel")
    assert (await plugin.answered())["ask_id"] == "c1"
    assert (await phone.until("approval.resolved")).payload["outcome"] == "denied"
    await respond(phone, first["approval_id"], "deny")
    assert (await plugin.answered())["choice"] == "deny"
    await phone.until("approval.request", lambda frame: frame.payload["state"] == "open")
    await respond(phone, second["approval_id"], "once")
    await plugin.answered("gone")
    again = await phone.until("approval.resolved", lambda frame: frame.payload["approval_id"] == second["approval_id"])
    assert again.payload["outcome"] == "expired"


async def test_a_question_is_answered_by_a_button_and_by_typing(phone: Phone, plugin: Plugin) -> None:
    await ask(plugin, "q1", kind="question", text="Which one?", choices=["red", "blue"])
    asked = (await phone.until("question.ask")).payload
    assert (asked["text"], asked["choices"], asked["chat_id"]) == ("Which one?", ["red", "blue"], "home")
    await phone.send("chat", "question.answer", question_id=asked["question_id"], answer="blue")
    assert (await plugin.answered())["text"] == "blue"
    await phone.until("question.closed")
    await ask(plugin, "q2", kind="question", text="What name?")
    asked = (await phone.until("question.ask")).payload
    sent = await phone.ask("messages", "message.send", text="Alice")
    answer = await plugin.answered()
    assert (answer["ask_id"], answer["text"]) == ("q2", "Alice")
    closed = (await phone.until("question.closed")).payload
    assert (closed["question_id"], closed["outcome"], closed["answer"]) == (asked["question_id"], "answered", "Alice")
    await phone.ask("messages", "message.send", text="and now something else")
    assert (await plugin.take())["text"] == "and now something else"  # Alice is no message of its own
    page = await phone.ask("messages", "threads.history")
    assert page.payload["messages"][0]["message_id"] == sent.payload["message_id"]


async def test_an_approval_is_answered_by_a_typed_command(phone: Phone, plugin: Plugin) -> None:
    await ask(plugin, "a1", choices=["once", "session", "deny"])
    await phone.until("approval.request")
    await phone.ask("messages", "message.send", text="/approve session")
    assert (await plugin.answered())["choice"] == "session"
    await phone.until("approval.resolved")
    await phone.ask("messages", "message.send", text="/deny")  # nothing is open: Hermes says what it thinks of it
    assert (await plugin.take())["text"] == "/deny"


async def test_a_typed_answer_that_comes_too_late_is_a_message(phone: Phone, plugin: Plugin) -> None:
    await ask(plugin, "q1", kind="question", text="What name?")
    await phone.until("question.ask")
    await phone.ask("messages", "message.send", text="Alice")
    await plugin.answered("gone")
    assert (await phone.until("question.closed")).payload["outcome"] == "expired"
    await phone.ask("messages", "message.send", text="next")
    assert (await plugin.take())["text"] == "next"


async def test_an_older_phone_answers_a_question_by_its_reply(relay: RunningRelay, plugin: Plugin) -> None:
    phone = await older.connect(relay)
    await plugin.durable("message", chat_id="home", local_id="m1", text="working", thread_id="t1")
    verdict = await plugin.message("a question follows", thread_id="t1")
    await ask(plugin, "q1", kind="question", text="What name?", thread_id="t1")
    said = {"text": "Alice", "reply_to": verdict["message_id"], "chat_id": "home"}
    await phone.send("proactive", "proactive.reply", said)
    await phone.until("proactive.reply.ack")
    answer = await plugin.answered()
    assert (answer["ask_id"], answer["text"]) == ("q1", "Alice")


async def test_a_typed_answer_that_was_not_sent_passes_what_waits_for_it(
    relay: RunningRelay, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise GatewayAway()

    token, spool = relay.relay.link.read(), Spool()
    async with linked(relay.url, token, spool) as plugin:
        await phone.ask("messages", "message.send", text="ask me")
        await plugin.take()
        await ask(plugin, "q1", kind="question", text="What name?")
        await phone.until("question.ask")
        monkeypatch.setattr(relay.relay.agent_link, "answer", away)
        await phone.ask("messages", "message.send", text="Alice")
        assert (await plugin.take())["text"] == "Alice"  # Hermes takes it as the answer


async def test_what_the_agent_did_not_wait_for_ends(phone: Phone, plugin: Plugin) -> None:
    await ask(plugin, "a1")
    asked = (await phone.until("approval.request")).payload
    assert (await plugin.durable("ask.closed", ask_id="a1"))["type"] == "ok"
    assert (await phone.until("approval.resolved")).payload["outcome"] == "resolved_elsewhere"
    refused = await phone.ask("chat", "approval.respond", approval_id=asked["approval_id"], choice="once")
    assert refused.payload["code"] == "approval_closed"


async def test_an_answer_while_the_gateway_is_away_is_surely_not_sent(relay: RunningRelay, phone: Phone) -> None:
    spool, token = Spool(), relay.relay.link.read()
    async with linked(relay.url, token, spool) as plugin:
        await ask(plugin, "a1")
        asked = (await phone.until("approval.request")).payload
        await plugin.hang_up()
    while relay.relay.agent_link.is_up:
        await phone.ping()
    refused = await phone.ask("chat", "approval.respond", approval_id=asked["approval_id"], choice="once")
    assert (refused.payload["code"], refused.payload["layer"]) == ("gateway_away", "upstream")
    async with linked(relay.url, token, spool) as plugin:
        await respond(phone, asked["approval_id"], "once")
        assert (await plugin.answered())["ask_id"] == "a1"
        await phone.until("approval.resolved")
        await ask(plugin, "a2")
        asked = (await phone.until("approval.request")).payload
        await respond(phone, asked["approval_id"], "once")
        await plugin.until("answer")
        await plugin.hang_up()  # it has it, or not
    assert (await phone.until("approval.resolved")).payload["outcome"] == "uncertain"


async def test_a_relay_that_died_between_an_ask_and_its_number_asks_once(tmp_path: Path) -> None:
    spool, forget = Spool(), text("UPDATE link_spools SET received = 0")
    async with running(settings_for(tmp_path)) as relay:
        phone = await relay.connect()
        async with linked(relay.url, relay.relay.link.read(), spool) as plugin:
            await ask(plugin, "a1")
            copy = {"ask_id": "a1", "kind": "approval", "chat_id": "home", "text": "a copy", "timeout_s": 60}
            for _ in range(2):
                await relay.relay.db.write(lambda tx: tx.execute(forget))
                await plugin.send("ask", n=1, **copy)
                assert (await plugin.until("ok"))["n"] == 1
        token = phone.token
    async with running(settings_for(tmp_path)) as relay:
        phone = await relay.connect(session_token=token)
        async with linked(relay.url, relay.relay.link.read(), spool) as plugin:
            await relay.relay.db.write(lambda tx: tx.execute(forget))
            await plugin.send("ask", n=1, **copy)
            await plugin.until("ok")
        await phone.send("system", "sync", after=0)
        await phone.until("synced")
        asked = {frame.seq for frame in phone.frames if frame.type == "approval.request"}
        assert len(asked) == len(phone.auth["approvals"]) == 1


async def test_asks_outlive_the_relay_but_not_the_gateway(tmp_path: Path) -> None:
    spool = Spool()
    async with running(settings_for(tmp_path)) as relay:
        phone = await relay.connect()
        async with linked(relay.url, relay.relay.link.read(), spool) as plugin:
            await ask(plugin, "a1")
            await ask(plugin, "q1", kind="question", text="Which?")
        token = phone.token
    async with running(settings_for(tmp_path)) as relay:
        phone = await relay.connect(session_token=token)
        (asked,), (question,) = phone.auth["approvals"], phone.auth["questions"]
        async with linked(relay.url, relay.relay.link.read(), spool) as plugin:
            await plugin.send("ask", n=1, ask_id="a1", kind="approval", chat_id="home", text="a copy", timeout_s=60)
            assert (await plugin.next())["type"] == "ok"
            await respond(phone, asked["approval_id"], "once")
            assert (await plugin.answered())["ask_id"] == "a1"
            assert (await phone.until("approval.resolved")).payload["outcome"] == "allowed"
        async with linked(relay.url, relay.relay.link.read(), spool, restarted=True) as plugin:
            closed = (await phone.until("question.closed")).payload
            assert (closed["question_id"], closed["outcome"]) == (question["question_id"], "resolved_elsewhere")
