"""What the owner says reaches the gateway once, in order, and one at a time, whoever is away meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.clock import ManualClock
from app.threads import service, store
from tests import older
from tests.api.conftest import client_of
from tests.link import Plugin, Spool, linked
from tests.phone import Phone, open_socket
from tests.relay import RunningRelay, running, settings_for


async def say(phone: Phone, text: str, **said: object) -> str:
    """The id of the message."""
    answer = await phone.ask("messages", "message.send", text=text, **said)
    assert answer.type == "message.accepted", answer
    return str(answer.payload["message_id"])


async def test_two_hundred_that_waited_come_once_in_order_one_at_a_time(relay: RunningRelay, phone: Phone) -> None:
    first = await phone.ask("messages", "message.send", text="t0")
    assert first.payload["queued"] is True
    for number in range(1, 200):
        await say(phone, f"t{number}")
    spool = Spool()
    heard: list[str] = []
    for cut in (60, 61, 130, 200):  # the link is cut between taking one and being done with it
        async with linked(relay.url, relay.relay.link.read(), spool) as plugin:
            while len(heard) < cut:
                inbound = await plugin.take()
                heard.append(inbound["text"])
                if len(heard) == cut and cut < 200:
                    spool.add("done", inbound_id=inbound["inbound_id"], outcome="success")  # goes out with the next
                    await plugin.hang_up()
                    break
                assert sum(frame["type"] == "inbound" for frame in plugin.heard) <= len(heard)
                await plugin.done(inbound)
    assert heard == [f"t{number}" for number in range(200)]


async def test_the_next_comes_when_the_one_before_is_done(phone: Phone, plugin: Plugin) -> None:
    ids = [await say(phone, text) for text in ("one", "two")]
    elsewhere = await say(phone, "aside", thread_id="t1")
    given = [(await plugin.take())["inbound_id"] for _ in range(2)]
    assert given == [ids[0], elsewhere]  # threads do not wait for each other
    await plugin.message("an answer", reply_to=ids[0])
    assert [frame["inbound_id"] for frame in plugin.heard if frame["type"] == "inbound"] == given
    await plugin.done({"inbound_id": ids[0]})
    assert (await plugin.take())["inbound_id"] == ids[1]


async def test_what_was_not_taken_comes_again_and_what_was_does_not(relay: RunningRelay, phone: Phone) -> None:
    token, spool = relay.relay.link.read(), Spool()
    id = await say(phone, "one")
    after = await say(phone, "two")
    async with linked(relay.url, token, spool) as plugin:
        assert (await plugin.until("inbound"))["inbound_id"] == id
        await plugin.hang_up()
    async with linked(relay.url, token, spool) as plugin:
        assert (await plugin.take())["inbound_id"] == id
        await plugin.message("I am at it", reply_to=id)  # `taken` has been read before this
        await plugin.hang_up()
    async with linked(relay.url, token, spool) as plugin:
        await plugin.message("still at it", reply_to=id)
        await plugin.done({"inbound_id": id})
        await plugin.take()
        assert [frame["inbound_id"] for frame in plugin.heard if frame["type"] == "inbound"] == [after]


async def test_a_restarted_gateway_does_what_it_had_taken_by_itself(relay: RunningRelay, phone: Phone) -> None:
    token, spool = relay.relay.link.read(), Spool()
    await say(phone, "one")
    after = await say(phone, "two")
    async with linked(relay.url, token, spool) as plugin:
        inbound = await plugin.take()
        await plugin.message("I am at it", reply_to=inbound["inbound_id"])
        await plugin.hang_up()
    async with linked(relay.url, token, spool, restarted=True) as plugin:
        assert (await plugin.take())["inbound_id"] == after


async def test_a_copy_is_one_message(phone: Phone, plugin: Plugin) -> None:
    ids = {await say(phone, "once", client_msg_id="c1") for _ in range(3)}
    assert len(ids) == 1
    refused = await phone.ask("messages", "message.send", text="other", client_msg_id="c1")
    assert refused.payload["code"] == "id_reused"
    await plugin.done(await plugin.take())
    await say(phone, "next")
    assert (await plugin.take())["text"] == "next"
    page = await phone.ask("messages", "threads.history")
    assert [one["text"] for one in page.payload["messages"]] == ["once", "next"]


async def test_commands_about_what_runs_do_not_wait_for_its_end(phone: Phone, plugin: Plugin) -> None:
    busy = await say(phone, "long work")
    assert (await plugin.take())["inbound_id"] == busy
    await say(phone, "after that")
    stop = await say(phone, "/stop now")
    assert (await plugin.take())["inbound_id"] == stop
    await plugin.done({"inbound_id": stop})
    assert [frame["text"] for frame in plugin.heard if frame["type"] == "inbound"] == ["long work", "/stop now"]
    await plugin.done({"inbound_id": busy}, "cancelled")
    assert (await plugin.take())["text"] == "after that"


async def test_a_command_that_was_given_while_the_link_was_cut_passes_too(relay: RunningRelay, phone: Phone) -> None:
    token, spool = relay.relay.link.read(), Spool()
    async with linked(relay.url, token, spool) as plugin:
        busy = await say(phone, "long work")
        await plugin.take()
        await plugin.message("at it", reply_to=busy)
        await plugin.hang_up()
    await phone.until("upstream", lambda frame: frame.payload["gateway"]["state"] == "down")
    stop = await say(phone, "/stop")
    async with linked(relay.url, token, spool) as plugin:
        assert (await plugin.take())["inbound_id"] == stop


async def test_a_command_that_came_too_late_for_what_ran_is_dropped(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay:
        phone, token, spool = await relay.connect(), relay.relay.link.read(), Spool()
        async with linked(relay.url, token, spool) as plugin:
            busy = await say(phone, "long work")
            assert (await plugin.take())["inbound_id"] == busy
            await say(phone, "/stop")
            await plugin.until("inbound")
            await plugin.hang_up()
        clock.advance(61)
        async with linked(relay.url, token, spool) as plugin:
            await plugin.done({"inbound_id": busy})
            await say(phone, "/status")  # nothing runs: it takes its turn
            assert (await plugin.take())["text"] == "/status"


async def test_the_queue_of_a_chat_is_bounded(
    phone: Phone, relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_WAITING", 3)
    for text in ("one", "two", "three"):
        await say(phone, text)
    refused = await phone.ask("messages", "message.send", text="four")
    assert (refused.payload["code"], refused.payload["retryable"]) == ("queue_full", True)
    await say(phone, "elsewhere", chat_id="work")
    page = await phone.ask("messages", "threads.history")
    assert [one["text"] for one in page.payload["messages"]] == ["one", "two", "three"]


async def test_a_reply_of_an_older_phone_goes_to_the_gateway_when_it_is_there(relay: RunningRelay) -> None:
    phone = await older.connect(relay)
    await older.subscribe(phone)
    async with client_of(relay, headers=relay.operator()) as operator:
        async with linked(relay.url, relay.relay.link.read()) as plugin:
            verdict = await plugin.message("how are you?", chat_id="home", thread_id="t1")
            said = {"text": "fine", "reply_to": verdict["message_id"], "message_id": "r-1"}
            for _ in range(2):
                await phone.send("proactive", "proactive.reply", said)
                ack = await phone.until("proactive.reply.ack")
                assert (ack.payload["client_msg_id"], ack.payload["status"]) == ("r-1", "received")
            inbound = await plugin.take()
            assert (inbound["text"], inbound["chat_id"], inbound["thread_id"]) == ("fine", "home", "t1")
            assert inbound["reply_to"] == verdict["message_id"]
            await plugin.done(inbound)
            assert (await operator.get("/phone/replies")).json() == {"replies": []}
            gone = plugin
        await gone.closed()
        while relay.relay.agent_link.is_up:
            await phone.ping()
        await phone.send("proactive", "proactive.reply", {"text": "for a tool", "message_id": "r-2"})
        found = (await operator.get("/phone/replies?timeout=5")).json()["replies"]
        assert [one["text"] for one in found] == ["for a tool"]


async def test_nothing_is_lost_or_doubled_over_restarts_of_the_relay(tmp_path: Path) -> None:
    spool, heard = Spool(), []
    fields: dict[str, str] = {}
    for round_ in range(3):
        async with running(settings_for(tmp_path)) as relay:
            phone = await relay.connect(**fields)
            fields = {"session_token": phone.token}
            for number in range(3):
                await say(phone, f"{round_}.{number}")
            async with linked(relay.url, relay.relay.link.read(), spool) as plugin:
                for _ in range(2):
                    inbound = await plugin.take()
                    heard.append(inbound["text"])
                    spool.add("done", inbound_id=inbound["inbound_id"], outcome="success")
                    await plugin.socket.send(json.dumps(spool.frames[spool.last]))
                await plugin.until("ok", lambda frame: frame["n"] == spool.last)
    assert heard == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]


async def test_who_is_not_paired_or_not_granted_reaches_nothing(relay: RunningRelay, plugin: Plugin) -> None:
    mute = await relay.connect(pairing_code=(await relay.relay.pairing.mint(grants={"terminal": None})).code)
    await mute.until("synced")
    for type_ in ("message.send", "threads.list", "threads.history", "threads.read", "commands.list"):
        answer = await mute.ask("messages", type_, text="x")
        assert answer.payload["code"] == "grant_missing"
    await plugin.update("m1", "secret ▉", reply_to="u1")
    await plugin.send("progress", chat_id="home", local_id="p1", text="📖 Reading hostname")
    await plugin.message("secret", local_id="m1", reply_to="u1")
    await mute.ping()
    assert not [frame for frame in mute.frames if frame.channel == "messages"]
    async with open_socket(relay.url) as stranger:
        await stranger.send("messages", "message.send", text="x")
        assert (await stranger.closed())[0] == 1008
    assert all(frame["type"] != "inbound" for frame in plugin.heard)


async def test_what_ends_while_its_thread_is_looked_at_does_not_hold_it(
    relay: RunningRelay, phone: Phone, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that comes back says what was done while the relay looks what there is to give."""
    lane = store.Lane("home")
    id, after = await say(phone, "one"), await say(phone, "two")
    await plugin.take()
    await plugin.message("I am at it", reply_to=id)
    lanes, read = relay.relay.threads._lanes, relay.relay.db.read
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def late(work: Any) -> Any:
        found = await read(work)
        looked.set()
        await go_on.wait()
        return found

    lanes.down()
    with monkeypatch.context() as patch:
        patch.setattr(relay.relay.db, "read", late)
        lanes.kick(lane)
        await looked.wait()
    await plugin.done({"inbound_id": id})
    go_on.set()
    assert (await plugin.take())["inbound_id"] == after
