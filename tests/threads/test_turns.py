"""Turns through the gateway, from a phone to a plugin and back: whatever Hermes does, one clean result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.link import CURSOR, Plugin, linked
from tests.phone import Frame, Phone
from tests.relay import RunningRelay

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.json"))


async def all_kept(phone: Phone) -> list[Frame]:
    """The messages that were kept for it so far, as a client has them that ignores numbers it has seen."""
    await phone.send("system", "sync", after=0)
    await phone.until("synced")
    return list({frame.seq: frame for frame in phone.frames if frame.type == "message" and frame.seq}.values())


async def test_a_turn_through_the_gateway(phone: Phone, plugin: Plugin) -> None:
    accepted = await phone.ask("messages", "message.send", chat_id="home", text="hi", client_msg_id="c1")
    assert accepted.type == "message.accepted", accepted
    assert accepted.payload["queued"] is False
    inbound = await plugin.take()
    assert inbound["inbound_id"] == accepted.payload["message_id"]
    assert (inbound["text"], inbound["chat_id"], inbound["chat_name"]) == ("hi", "home", "Home")
    answers = {"reply_to": inbound["inbound_id"]}
    await plugin.update("m1", "Hel" + CURSOR, **answers)
    start = await phone.until("message.start")
    assert start.payload["text"] == "Hel"
    await plugin.update("m1", "Hello wor" + CURSOR, **answers)
    update = await phone.until("message.update")
    assert (update.payload["text"], update.payload["n"]) == ("Hello wor", 2)
    verdict = await plugin.message("Hello world", local_id="m1", **answers)
    assert verdict["message_id"] == start.payload["message_id"]
    message = await phone.until("message")
    assert (message.seq, message.payload["text"], message.payload["source"]) == (1, "Hello world", "reply")
    assert message.payload["message_id"] == start.payload["message_id"]
    assert (await plugin.done(inbound))["type"] == "ok"


async def test_a_final_version_that_says_nothing_new_is_not_said_again(phone: Phone, plugin: Plugin) -> None:
    first = await plugin.message("Hello", local_id="m1", reply_to="u1")
    again = await plugin.message("Hello", local_id="m1", reply_to="u1")
    assert again == first | {"n": 2}
    await plugin.update("m1", "Hello" + CURSOR, reply_to="u1")  # late
    changed = await plugin.message("Hello there", local_id="m1", reply_to="u1")
    assert changed["message_id"] == first["message_id"]
    frames = await all_kept(phone)
    assert [(f.payload["text"], f.payload.get("edited")) for f in frames] == [("Hello", None), ("Hello there", True)]
    assert len({frame.id for frame in frames}) == 2
    page = await phone.ask("messages", "threads.history")
    assert [one["text"] for one in page.payload["messages"]] == ["Hello there"]
    assert "message.start" not in [frame.type for frame in phone.frames]


async def test_tools_are_told_from_answers_in_whatever_order_they_come(phone: Phone, plugin: Plugin) -> None:
    await plugin.send("typing", chat_id="home", on=True)
    await plugin.send("progress", chat_id="home", local_id="p1", text="💻 terminal\n```\nls\n```")
    first = await phone.until("tool.started")
    assert (first.payload["tool_name"], first.payload["preview"]) == ("terminal", "ls")
    await plugin.send("progress", chat_id="home", local_id="p1", text="💻 terminal\n```\nls\n```\n📖 Reading hostname")
    done = await phone.until("tool.completed")
    assert done.payload["tool_id"] == first.payload["tool_id"]
    second = await phone.until("tool.started")
    assert second.payload["tool_name"] == "read_file"
    await plugin.update("m1", "tool said" + CURSOR, reply_to="u1")
    await phone.until("message.start")
    # a bubble that comes after the answer began, as a message that nothing marks as one
    await plugin.message("💻 terminal\n```\nexit 3\n```", local_id="p2")
    third = await phone.until("tool.started")
    assert third.payload["preview"] == "exit 3"
    assert (await plugin.message("💻 terminal\n```\nexit 3\n```", local_id="p2")).get("message_id") is None
    await plugin.message("tool said so", local_id="m1", reply_to="u1")
    assert (await phone.until("tool.completed")).payload["tool_id"] == third.payload["tool_id"]
    await plugin.send("progress", chat_id="home", local_id="p3", text="💬 I look around")
    assert (await phone.until("commentary")).payload["text"] == "I look around"
    assert [frame.payload["text"] for frame in await all_kept(phone)] == ["tool said so"]


async def test_a_tool_that_is_told_of_after_the_turn_does_not_run_for_ever(phone: Phone, plugin: Plugin) -> None:
    await phone.ask("messages", "message.send", text="do it")
    inbound = await plugin.take()
    await plugin.send("progress", chat_id="home", local_id="p1", text="📖 Reading hostname")
    await phone.until("tool.started")
    await plugin.message("done", reply_to=inbound["inbound_id"])
    assert (await phone.until("tool.completed")).payload["preview"] == "hostname"
    await plugin.done(inbound)
    await plugin.send("progress", chat_id="home", local_id="p2", text="📖 Reading passwd")
    await phone.until("tool.started")
    assert (await phone.until("tool.completed")).payload["preview"] == "passwd"


async def test_silence_is_neither_shown_nor_kept(phone: Phone, plugin: Plugin) -> None:
    await plugin.update("m1", "NO" + CURSOR, reply_to="u1")
    await plugin.update("m1", "NO_REPLY" + CURSOR, reply_to="u1")
    assert "message_id" not in await plugin.message("NO_REPLY", local_id="m1", reply_to="u1")
    await plugin.update("m2", "NO" + CURSOR, reply_to="u2")
    await plugin.update("m2", "NO problem" + CURSOR, reply_to="u2")
    assert (await phone.until("message.start")).payload["text"] == "NO problem"
    await plugin.message("NO problem at all", local_id="m2", reply_to="u2")
    assert [frame.payload["text"] for frame in await all_kept(phone)] == ["NO problem at all"]


async def test_a_failure_that_is_told_twice_is_told_once(phone: Phone, plugin: Plugin) -> None:
    said = "⚠️ The model provider failed after retries."
    first = await plugin.message(said, source="notice")
    second = await plugin.message(said, reply_to="u2")
    assert second["message_id"] == first["message_id"]
    await plugin.message(said, reply_to="u3", thread_id="t1")  # elsewhere it is news
    assert [frame.payload.get("thread_id") for frame in await all_kept(phone)] == [None, "t1"]


async def test_what_a_failed_edit_left_comes_before_the_rest(phone: Phone, plugin: Plugin) -> None:
    await plugin.update("m1", "w1 w2 w3" + CURSOR, reply_to="u1")
    await plugin.message("w4 w5", local_id="m2", reply_to="u1")
    await plugin.update("m3", "w1 w2" + CURSOR, reply_to="u2")
    await plugin.message("w1 w2 w3 w4", local_id="m4", reply_to="u2")  # all of it again
    assert [frame.payload["text"] for frame in await all_kept(phone)] == ["w1 w2 w3", "w4 w5", "w1 w2 w3 w4"]


async def test_what_was_thought_and_reported_has_fields_of_its_own(phone: Phone, plugin: Plugin) -> None:
    await plugin.message("💭 **Reasoning:**\n```\nfirst this\n```\n\nthe answer is 42", reply_to="u1")
    wrapped = (
        "Cronjob Response: news\n(job_id: 813dbe975485)\n-------------\n\nnothing new\n\n"
        'To stop or manage this job, send me a new message (e.g. "stop reminder news").'
    )
    await plugin.message(wrapped, source="cron", job_id="813dbe975485")
    answer, report = await all_kept(phone)
    assert (answer.payload["reasoning"], answer.payload["text"]) == ("first this", "the answer is 42")
    assert (report.payload["title"], report.payload["text"]) == ("news", "nothing new")
    assert (report.payload["source"], report.payload["job_id"]) == ("cron", "813dbe975485")


async def test_long_thoughts_are_cut_in_the_frame_and_whole_in_the_history(phone: Phone, plugin: Plugin) -> None:
    thought = "so " * 20_000
    await plugin.message(f"💭 **Reasoning:**\n```\n{thought}\n```\n\nyes", reply_to="u1")
    (frame,) = await all_kept(phone)
    assert frame.payload["truncated"] is True
    assert thought.startswith(frame.payload["reasoning"])
    page = await phone.ask("messages", "threads.history")
    assert page.payload["messages"][0]["reasoning"] == thought


async def test_a_stopped_turn_ends_what_it_was_writing(phone: Phone, plugin: Plugin) -> None:
    await phone.ask("messages", "message.send", text="write a lot")
    inbound = await plugin.take()
    await plugin.update("m1", "w1 w2" + CURSOR, reply_to=inbound["inbound_id"])
    await phone.until("message.start")
    stop = await phone.ask("messages", "message.send", text="/stop")
    assert (await plugin.take())["inbound_id"] == stop.payload["message_id"]  # although the turn is not done
    await plugin.message("⚡ Stopped.", reply_to=stop.payload["message_id"])
    await plugin.done(inbound, "cancelled")
    frames = await all_kept(phone)
    assert [(f.payload["text"], f.payload.get("interrupted")) for f in frames] == [
        ("⚡ Stopped.", None),
        ("w1 w2", True),
    ]


async def test_a_gateway_that_was_restarted_ends_what_it_was_writing(relay: RunningRelay, phone: Phone) -> None:
    token = relay.relay.link.read()
    async with linked(relay.url, token) as plugin:
        await plugin.update("m1", "half" + CURSOR, reply_to="u1")
        start = await phone.until("message.start")
        spool = plugin.spool
        await plugin.hang_up()
    async with linked(relay.url, token, spool, restarted=True) as plugin:
        await plugin.durable("interrupted", chat_id="home", local_id="m1")
        await plugin.durable("interrupted", chat_id="home", local_id="never-seen")
        (frame,) = await all_kept(phone)
        assert frame.payload["interrupted"] is True
        assert (frame.payload["text"], frame.payload["message_id"]) == ("half", start.payload["message_id"])


async def test_who_comes_later_sees_what_is_under_way(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    await plugin.update("m1", "half" + CURSOR, reply_to="u1")
    await plugin.send("typing", chat_id="home", on=True)
    await plugin.send("progress", chat_id="home", local_id="p1", text="📖 Reading hostname")
    await phone.until("tool.started")
    tablet = await relay.connect()
    shown = [(await tablet.next()).type for _ in range(4)]
    assert shown == ["synced", "message.start", "tool.started", "typing"]
    await plugin.hang_up()
    assert (await tablet.until("tool.completed")).payload["tool_name"] == "read_file"
    assert (await tablet.until("typing")).payload["on"] is False


async def test_the_owners_other_devices_see_what_one_said(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    tablet = await relay.connect()
    await tablet.until("synced")
    sent = await phone.ask("messages", "message.send", text="hi")
    said = await tablet.until("message")
    assert said.seq is None
    assert (said.payload["source"], said.payload["device_id"]) == ("device", phone.auth["device_id"])
    assert said.payload["message_id"] == sent.payload["message_id"]
    assert await all_kept(phone) == []


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
async def test_recorded_calls_of_hermes_give_one_clean_result(phone: Phone, plugin: Plugin, capture: Path) -> None:
    """What Hermes 0.19 called an adapter with, said over the link as the plugin says it."""
    story: dict[str, Any] = json.loads(capture.read_text())
    for frame in story["frames"]:
        said = {name: value for name, value in frame.items() if name != "type"}
        await (plugin.durable if frame["type"] == "message" else plugin.send)(frame["type"], **said)
    frames = await all_kept(phone)
    assert [frame.payload["text"] for frame in frames] == story["messages"]
    tools = [frame.payload for frame in phone.frames if frame.type == "tool.started"]
    assert [[tool["tool_name"], tool["preview"]] for tool in tools] == story["tools"]
    shown = [frame for frame in phone.frames if frame.type in ("message.start", "message.update")]
    assert all("▉" not in frame.payload["text"] for frame in shown)
