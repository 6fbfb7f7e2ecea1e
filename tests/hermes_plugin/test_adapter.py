"""Hermes's calls, in the forms that were recorded, and what the relay hears of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.hermes_plugin.conftest import Connect
from tests.hermes_plugin.hermes_stub import Asks
from tests.hermes_plugin.scripted import ScriptedRelay

STREAMED = {"reply_to_message_id": "u1", "expect_edits": True}
KEY = "agent:main:talaria:dm:home"


async def test_hello_says_who_is_there(relay: ScriptedRelay, adapter: Any) -> None:
    (hello,) = relay.hellos
    assert hello | {"spool": ""} == {
        "type": "hello", "version": 1, "spool": "", "plugin": "1.0.0", "hermes": "0.19.0", "platform": "talaria",
        "restarted": True, "commands": [{"name": "new", "description": "Start anew", "usage": "/new [name]"}],
    }  # fmt: skip


async def test_a_streamed_answer_is_versions_and_one_message(relay: ScriptedRelay, adapter: Any) -> None:
    sent = await adapter.send(chat_id="home", content="w1 ▉", reply_to="u1", metadata=STREAMED)
    await relay.heard("update", text="w1 ▉", local_id=sent.message_id, reply_to="u1")
    for words in range(2, 12):
        await adapter.edit_message(chat_id="home", message_id=sent.message_id, content=f"w{words} ▉", finalize=False)
    for _ in range(2):  # as 0.19 does
        done = await adapter.edit_message(chat_id="home", message_id=sent.message_id, content="w1 w2", finalize=True)
        assert done.success
    await adapter.send("home", "after")
    await relay.heard("message", text="after")
    (message,) = relay.all("message", local_id=sent.message_id)
    assert message["text"] == "w1 w2"
    assert message["reply_to"] == "u1"
    assert message["source"] == "reply"
    assert len(relay.all("update")) < 10
    assert relay.said.index(message) > relay.said.index(relay.all("update")[-1])


@pytest.mark.parametrize(
    ("call", "heard"),
    [
        (
            {"content": "hello", "reply_to": "u1", "metadata": {"reply_to_message_id": "u1", "notify": True}},
            {"type": "message", "text": "hello", "source": "reply", "reply_to": "u1"},
        ),
        ({"content": "let me look", "metadata": None}, {"type": "message", "text": "let me look", "source": "notice"}),
        (
            {"content": "⚡ Interrupting", "reply_to": "u2", "metadata": None},
            {"type": "message", "text": "⚡ Interrupting", "source": "notice", "reply_to": "u2"},
        ),
        (
            {"content": "Cronjob Response: watch\n(job_id: ab)\n-----\n\nquiet", "metadata": {"job_id": "ab"}},
            {"type": "message", "source": "cron", "job_id": "ab", "title": "watch"},
        ),
        (
            {"content": "💻 terminal\n```\necho hi\n```", "reply_to": None, "metadata": None},
            {"type": "progress", "text": "💻 terminal\n```\necho hi\n```"},
        ),
        (
            {"chat_id": "home:plans", "content": "x", "metadata": {"job_id": "ab"}},
            {"type": "message", "chat_id": "home", "thread_id": "plans"},
        ),
        (
            {"content": "x", "reply_to": "u1", "metadata": {"notify": True, "thread_id": "plans"}},
            {"type": "message", "text": "x", "thread_id": "plans"},
        ),
    ],
)
async def test_what_a_send_is(relay: ScriptedRelay, adapter: Any, call: dict[str, Any], heard: dict[str, Any]) -> None:
    await adapter.send(**{"chat_id": "home"} | call)
    await relay.heard(heard["type"], **heard)


async def test_a_refusal_is_told_to_the_caller(relay: ScriptedRelay, adapter: Any) -> None:
    relay.refuse = lambda frame: "there is no chat nowhere" if frame["chat_id"] == "nowhere" else None
    sent = await adapter.send("nowhere", "hello")
    assert (sent.success, sent.error, sent.retryable) == (False, "there is no chat nowhere", False)
    assert (await adapter.send("home", "hello")).success


async def test_a_refusal_that_comes_too_late_goes_to_the_home_chat(
    relay: ScriptedRelay, gateway: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay.refuse = lambda frame: "there is no chat nowhere" if frame["chat_id"] == "nowhere" else None
    async with gateway(url="http://127.0.0.1:9") as adapter:
        assert (await adapter.send("nowhere", "the news")).success
    async with gateway():
        report = await relay.heard("message", chat_id="home")
    assert "there is no chat nowhere" in report["text"]
    assert report["text"].endswith("the news")


async def test_what_was_said_while_the_relay_was_away_comes_in_order(relay: ScriptedRelay, gateway: Connect) -> None:
    async with gateway(url="http://127.0.0.1:9") as adapter:
        for number in range(40):
            assert (await adapter.send("home", f"m{number}")).success
    async with gateway():
        await relay.heard("message", 40)
    assert [frame["text"] for frame in relay.all("message")] == [f"m{number}" for number in range(40)]
    assert [frame["n"] for frame in relay.said] == list(range(1, 41))


async def test_an_answer_that_was_lost_is_not_a_second_message(relay: ScriptedRelay, adapter: Any) -> None:
    relay.silent = True
    sending = asyncio.ensure_future(adapter.send("home", "once"))
    await relay.heard("message")
    relay.silent = False
    await relay.hang_up()
    await relay.until(lambda: len(relay.hellos) == 2 and relay.socket)
    assert relay.hellos[1]["restarted"] is False
    assert (await sending).success
    await adapter._link.up.wait()
    await adapter.send("home", "next")
    assert [frame["text"] for frame in relay.all("message")] == ["once", "next"]


async def test_a_half_written_message_is_closed_after_a_restart(relay: ScriptedRelay, gateway: Connect) -> None:
    async with gateway() as adapter:
        await adapter._link.up.wait()
        sent = await adapter.send(chat_id="home", content="half a ▉", reply_to="u1", metadata=STREAMED)
        whole = await adapter.send(chat_id="home", content="whole ▉", reply_to="u1", metadata=STREAMED)
        await adapter.edit_message(chat_id="home", message_id=whole.message_id, content="whole", finalize=True)
    async with gateway():
        closed = await relay.heard("interrupted")
        await relay.until(lambda: len(relay.hellos) == 2)
    assert closed["local_id"] == sent.message_id
    assert len(relay.all("interrupted")) == 1


async def test_typing_is_said_once_each(relay: ScriptedRelay, adapter: Any) -> None:
    await adapter.send_typing("home", metadata=None)
    await relay.heard("typing", on=True)
    for _ in range(5):
        await adapter.stop_typing("home")
    await relay.heard("typing", on=False)
    await adapter.send("home", "end")
    assert [frame["on"] for frame in relay.all("typing")] == [True, False]


async def test_a_status_is_revised_in_place(relay: ScriptedRelay, adapter: Any) -> None:
    first = await adapter.send_or_update_status("home", "lifecycle", "retrying", metadata=None)
    await relay.heard("progress", text="💬 retrying")
    second = await adapter.send_or_update_status("home", "lifecycle", "failed", metadata=None)
    await relay.heard("progress", text="💬 failed", local_id=first.message_id)
    assert second.message_id == first.message_id


# asks


async def test_an_approval_is_answered_by_button(relay: ScriptedRelay, adapter: Any, asks: Asks) -> None:
    asks.approvals.append(KEY)
    await adapter.send_exec_approval(
        chat_id="home", command="rm -rf x", session_key=KEY, description="delete", metadata=None,
        allow_permanent=False, smart_denied=False,
    )  # fmt: skip
    ask = await relay.heard("ask", kind="approval", text="rm -rf x", description="delete")
    assert ask["choices"] == ["once", "session", "deny"]
    assert 55 < ask["timeout_s"] <= 60
    await relay.say("answer", answer_id="a1", ask_id=ask["ask_id"], choice="deny")
    assert (await relay.heard("answered", answer_id="a1"))["result"] == "ok"
    assert asks.answers == [(KEY, "deny")]
    await relay.say("answer", answer_id="a2", ask_id=ask["ask_id"], choice="once")
    assert (await relay.heard("answered", answer_id="a2"))["result"] == "gone"


async def test_a_question_is_answered_by_its_id(relay: ScriptedRelay, adapter: Any, asks: Asks) -> None:
    asks.questions[KEY] = "c1"
    await adapter.send_clarify(
        chat_id="home", question="Which?", choices=["red", "blue"], clarify_id="c1", session_key=KEY, metadata=None
    )
    ask = await relay.heard("ask", kind="question", text="Which?", choices=["red", "blue"])
    await relay.say("answer", answer_id="a1", ask_id=ask["ask_id"], text="green")
    await relay.heard("answered", result="ok")
    assert asks.answers == [("c1", "green")]


async def test_a_confirmation_says_what_came_of_it(relay: ScriptedRelay, adapter: Any, asks: Asks) -> None:
    asks.confirms[KEY] = "1"
    await adapter.send_slash_confirm(
        chat_id="home", title="/new", message="Sure?", session_key=KEY, confirm_id="1", metadata=None
    )
    ask = await relay.heard("ask", kind="confirm", choices=["once", "always", "cancel"])
    await relay.say("answer", answer_id="a1", ask_id=ask["ask_id"], choice="deny")
    assert (await relay.heard("answered"))["text"] == "done: cancel"
    await relay.heard("message", text="done: cancel")


async def test_an_ask_that_was_answered_otherwise_is_closed(relay: ScriptedRelay, adapter: Any, asks: Asks) -> None:
    asks.approvals.append(KEY)
    await adapter.send_exec_approval(chat_id="home", command="x", session_key=KEY)
    ask = await relay.heard("ask")
    await adapter.send(chat_id="home", content="waiting", metadata=None)
    assert not relay.all("ask.closed")
    asks.approvals.clear()  # /approve was typed
    await adapter.send(chat_id="home", content="going on", metadata=None)
    await relay.heard("ask.closed", ask_id=ask["ask_id"])


async def test_an_ask_that_may_not_be_shown_is_asked_in_words(relay: ScriptedRelay, adapter: Any, asks: Asks) -> None:
    relay.refuse = lambda frame: "there is no such chat"
    asked = await adapter.send_exec_approval(chat_id="nowhere", command="x", session_key=KEY)
    assert not asked.success


async def test_a_restart_closes_what_was_asked(relay: ScriptedRelay, gateway: Connect, asks: Asks) -> None:
    asks.approvals.append(KEY)
    async with gateway() as adapter:
        await adapter._link.up.wait()
        await adapter.send_exec_approval(chat_id="home", command="x", session_key=KEY)
        ask = await relay.heard("ask")
    async with gateway():
        await relay.heard("ask.closed", ask_id=ask["ask_id"])


# files


async def test_a_file_crosses_as_bytes(relay: ScriptedRelay, gateway: Connect, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    report = tmp_path / "out" / "report.txt"
    report.write_bytes(b"the figures")
    async with gateway(media_roots=[str(tmp_path / "out")]) as adapter:
        await adapter._link.up.wait()
        sent = await adapter.send_document(chat_id="home", file_path=str(report), metadata={"job_id": "ab"})
        report.unlink()
        message = await relay.heard("message", local_id=sent.message_id, source="cron")
    assert relay.files[message["media"][0]] == ("report.txt", b"the figures")
    assert str(tmp_path) not in str(relay.said)
    assert not [path for path in (tmp_path / "talaria" / "files").rglob("*") if path.is_file()]


async def test_a_file_waits_for_the_relay_too(relay: ScriptedRelay, gateway: Connect, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    picture = tmp_path / "out" / "a.png"
    picture.write_bytes(b"picture")
    roots = [str(tmp_path / "out")]
    async with gateway(url="http://127.0.0.1:9", media_roots=roots) as adapter:
        assert (await adapter.send_image_file(chat_id="home", image_path=str(picture), caption="look")).success
        picture.unlink()
    async with gateway(media_roots=roots):
        message = await relay.heard("message", text="look")
    assert relay.files[message["media"][0]] == ("a.png", b"picture")


async def test_a_file_from_elsewhere_stays_and_the_owner_is_told(
    relay: ScriptedRelay, adapter: Any, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("keep")
    (tmp_path / "cache" / "images").mkdir(parents=True)
    (tmp_path / "cache" / "images" / "innocent.png").symlink_to(secret)
    for path in (secret, tmp_path / "cache" / "images" / "innocent.png"):
        sent = await adapter.send_document(chat_id="home", file_path=str(path))
        assert not sent.success
    told = await relay.heard("message", 2)
    assert "TALARIA_MEDIA_ROOTS" in told["text"]
    assert str(tmp_path) not in told["text"]
    assert relay.files == {}


async def test_a_relay_that_refuses_the_file_gets_the_words(
    relay: ScriptedRelay, gateway: Connect, tmp_path: Path
) -> None:
    (tmp_path / "big.bin").write_bytes(b"x")
    relay.upload_status = 413
    async with gateway(media_roots=[str(tmp_path)]) as adapter:
        await adapter._link.up.wait()
        await adapter.send_document(chat_id="home", file_path=str(tmp_path / "big.bin"), caption="here")
        message = await relay.heard("message")
    assert message["media"] == []
    assert message["text"] == "here\n\n⚠️ big.bin was not sent: the relay refused it (413)"
