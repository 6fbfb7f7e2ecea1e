"""What phones say: given to Hermes once each, whatever is cut or restarted in between."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hermes_plugin.conftest import Connect
from tests.hermes_plugin.hermes_stub import Asks, MessageEvent
from tests.hermes_plugin.scripted import ScriptedRelay


async def test_a_message_is_taken_when_its_turn_begins_and_done_when_it_ends(
    relay: ScriptedRelay, adapter: Any
) -> None:
    await relay.inbound("i1", "hello", thread_id="plans", reply_to="m9", user_name="Ada")
    event = await adapter.next_given(1)
    assert (event.text, event.message_id, event.message_type.value) == ("hello", "i1", "text")
    assert (event.source.chat_id, event.source.thread_id, event.source.chat_type) == ("home", "plans", "dm")
    assert (event.source.user_id, event.source.user_name, event.reply_to_message_id) == ("owner", "Ada", "m9")
    await relay.heard("taken", inbound_id="i1")
    assert not relay.all("done")
    await adapter.end(event)
    await relay.heard("done", inbound_id="i1", outcome="success")


async def test_a_turn_is_not_done_before_hermes_has_freed_the_conversation(relay: ScriptedRelay, adapter: Any) -> None:
    released = asyncio.Event()
    await relay.inbound("i1", "hello")
    await adapter.end(await adapter.next_given(1), released)
    await adapter.send("home", "something later")
    assert not relay.all("done")
    released.set()
    await relay.heard("done", inbound_id="i1")


async def test_a_copy_is_known_within_a_turn_after_it_and_after_a_restart(
    relay: ScriptedRelay, gateway: Connect
) -> None:
    async with gateway() as adapter:
        await relay.inbound("i1", "hello")
        event = await adapter.next_given(1)
        await relay.heard("taken")
        await relay.inbound("i1", "hello")
        await relay.heard("taken", 2)
        await adapter.end(event)
        await relay.heard("done")
        await relay.inbound("i1", "hello")
        await relay.heard("taken", 3)
        assert len(adapter.given) == 1
    async with gateway() as adapter:
        await relay.until(lambda: len(relay.hellos) == 2 and relay.socket)
        await relay.inbound("i1", "hello")
        await relay.heard("taken", 4)
        assert adapter.given == []


async def test_what_hermes_answers_in_place_is_done_without_a_turn(
    relay: ScriptedRelay, adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.hermes_plugin.inbound.STARTED_S", 0.01)
    adapter.in_place = True
    await relay.inbound("i1", "/stop")
    await relay.heard("done", inbound_id="i1")
    assert adapter.given[0].message_type.value == "command"
    assert [frame["inbound_id"] for frame in relay.all("taken")] == ["i1"]


async def test_what_hermes_queues_is_not_done_before_its_turn(
    relay: ScriptedRelay, adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.hermes_plugin.inbound.STARTED_S", 0.01)
    adapter.in_place, adapter.queues = True, True
    await relay.inbound("i1", "later")
    event = await adapter.next_given(1)
    adapter.queues = False
    await relay.inbound("i2", "/status")
    await relay.heard("done", inbound_id="i2")
    assert not relay.all("done", inbound_id="i1")
    await adapter.on_processing_start(event)
    await adapter.end(event)
    await relay.heard("done", inbound_id="i1")


async def test_a_hermes_that_still_starts_is_waited_for(
    relay: ScriptedRelay, adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.hermes_plugin.inbound.READY_EVERY_S", 0)
    adapter.gateway_runner = SimpleNamespace(_startup_restore_in_progress=True)
    await relay.inbound("i1", "hello")
    await adapter.send("home", "still starting")
    assert adapter.given == []
    adapter.gateway_runner._startup_restore_in_progress = False
    await adapter.next_given(1)


async def test_hermes_own_turn_is_not_interrupted(relay: ScriptedRelay, adapter: Any, asks: Asks) -> None:
    source = adapter.build_source(chat_id="home", thread_id=None)
    rerun = MessageEvent("", source=source)  # what 0.19 does with a turn that a restart cut
    await adapter.on_processing_start(rerun)
    await adapter.on_processing_start(rerun)  # it overlaps with another one
    await relay.inbound("i1", "next")
    await relay.inbound("i2", "/stop")
    assert (await adapter.next_given(1)).text == "/stop"
    await adapter.end(rerun)
    await adapter.send("home", "one of two is over")
    assert len(adapter.given) == 1
    await adapter.end(rerun)
    assert (await adapter.next_given(2)).text == "next"


async def test_attached_files_are_in_hermes_cache(relay: ScriptedRelay, adapter: Any) -> None:
    relay.files["t1"] = ("a.png", b"picture")
    media = [
        {"token": "t1", "name": "a.png", "mime": "image/png", "size": 7},
        {"token": "gone", "name": "b.png", "mime": "image/png", "size": 7},
    ]
    await relay.inbound("i1", "look", media=media)
    event = await adapter.next_given(1)
    assert event.message_type.value == "photo"
    assert event.media_types == ["image/png"]
    assert Path(event.media_urls[0]).read_bytes() == b"picture"
    assert event.text == "look\n\n[the attached b.png is not there any more]"


async def test_a_message_hermes_chokes_on_does_not_block_the_lane(
    relay: ScriptedRelay, adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def choke(event: MessageEvent) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(adapter, "handle_message", choke)
    await relay.inbound("i1", "hello")
    await relay.heard("done", inbound_id="i1", outcome="failure")


async def test_what_an_earlier_gateway_took_does_not_hold_its_chat(relay: ScriptedRelay, gateway: Connect) -> None:
    """The relay was away when it was taken, so it gives the message again and waits for its end."""
    async with gateway() as adapter:
        await relay.inbound("i1", "hello")
        await adapter.next_given(1)
        await relay.heard("taken")
    async with gateway() as adapter:
        await relay.until(lambda: len(relay.hellos) == 2 and relay.socket)
        await relay.inbound("i1", "hello")
        await relay.heard("done", inbound_id="i1")
        assert adapter.given == []


async def test_a_full_disk_delays_the_end_of_a_turn_and_no_more(
    relay: ScriptedRelay, adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = type(adapter._spool)
    tried = asyncio.Queue[str]()

    def full(*_: Any) -> int:
        adapter._loop.call_soon_threadsafe(tried.put_nowait, "append")
        raise sqlite3.OperationalError("database or disk is full")

    adapter._loop = asyncio.get_running_loop()
    monkeypatch.setattr("deploy.hermes_plugin.inbound.DISK_EVERY_S", 0)
    await relay.inbound("i1", "hello")
    event = await adapter.next_given(1)
    with monkeypatch.context() as patch:
        patch.setattr(spool, "_append", full)
        patch.setattr(spool, "begin_stream", full)
        refused = await adapter.send("home", "kept nowhere", metadata={"notify": True})
        assert not refused.success
        assert (await adapter.send("home", "shown", metadata={"expect_edits": True})).success
        await adapter.end(event)
        for _ in range(4):
            async with asyncio.timeout(10):
                await tried.get()
    await relay.heard("done", inbound_id="i1")
