"""Messages while they are written: every reader at its own speed, in bounded memory, and through a restart."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.db import Tx
from app.gateway.connection import Connection
from app.threads import store, streams
from tests.crash.relay_process import RelayProcess
from tests.link import CURSOR, Plugin, Spool, linked, open_link
from tests.phone import Phone, authenticate, open_socket
from tests.relay import RunningRelay, running, settings_for


async def test_a_slow_reader_skips_versions_and_holds_nobody_up(
    relay: RunningRelay, phone: Phone, plugin: Plugin
) -> None:
    quick = await relay.connect()
    await quick.until("synced")
    phone.socket.transport.pause_reading()
    text, most = "", 0
    for number in range(300):
        text += f" word{number}" + "x" * 500
        await plugin.update("m1", text + CURSOR, reply_to="u1")
        if number % 10 == 0:
            await quick.ping()
            most = max(most, *(_waits(link) for link in relay.relay.hub.of_device(phone.auth["device_id"])))
    await plugin.update("m2", "another" + CURSOR, reply_to="u2")
    last = await quick.until("message.update", lambda frame: frame.payload["n"] == 300)
    assert last.payload["text"] == text.strip("\n")
    assert 0 < most < 64 * 1024 + len(text)  # the transport's own mark, and the version that went over it
    phone.socket.transport.resume_reading()
    last = await phone.until("message.update", lambda frame: frame.payload["n"] == 300)
    assert last.payload["text"] == text
    assert (await phone.until("message.start")).payload["text"] == "another"
    seen = [frame.payload["n"] for frame in phone.frames if frame.type == "message.update"]
    assert seen == sorted(seen)
    assert len(seen) < 250
    await plugin.message(text + " end", local_id="m1", reply_to="u1")
    assert (await phone.until("message")).payload["text"].endswith(" end")


def _waits(link: Any) -> int:
    """Bytes that the relay holds for a link."""
    assert isinstance(link, Connection)
    transport = link._socket._protocol.transport  # type: ignore[attr-defined]
    return int(link.outbound._bytes + transport.get_write_buffer_size())


async def test_an_update_after_the_end_begins_nothing(phone: Phone, plugin: Plugin) -> None:
    await plugin.update("m1", "half" + CURSOR, reply_to="u1")
    await plugin.message("whole", local_id="m1", reply_to="u1")
    await plugin.update("m1", "half of it" + CURSOR, reply_to="u1")
    await plugin.update("m2", "next" + CURSOR, reply_to="u2")
    assert [(await phone.until("message.start")).payload["text"] for _ in range(2)] == ["half", "next"]


async def test_an_answer_costs_one_commit_in_two_seconds(
    relay: RunningRelay, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: asyncio.Queue[float] = asyncio.Queue()
    wake = asyncio.Semaphore(0)

    async def nap(seconds: float) -> None:
        naps.put_nowait(seconds)
        await wake.acquire()

    monkeypatch.setattr(relay.relay.threads, "_sleep", nap)
    commits: list[str] = []
    checkpoint = store.checkpoint

    def counted(tx: Tx, id: str, said: dict[str, Any], now: float) -> None:
        commits.append(said["text"])
        checkpoint(tx, id, said, now)

    monkeypatch.setattr(store, "checkpoint", counted)
    for number in range(40):  # two seconds of edits
        await plugin.update("m1", f"w{number}" + CURSOR, reply_to="u1")
    await plugin.durable("ask.closed", ask_id="none")  # everything before was taken
    assert await naps.get() == 2.0
    assert commits == []
    wake.release()
    assert await naps.get() == 2.0
    assert commits == ["w39"]
    wake.release()  # nothing new: nothing is stored, and nobody sleeps any more
    await plugin.durable("ask.closed", ask_id="none")
    assert commits == ["w39"]
    assert naps.empty()
    await plugin.update("m1", "w40" + CURSOR, reply_to="u1")
    assert await naps.get() == 2.0
    wake.release()
    await naps.get()
    assert commits == ["w39", "w40"]
    await plugin.message("all", local_id="m1", reply_to="u1")
    assert await relay.relay.db.read(store.drafts) == []


async def test_more_than_are_shown_are_still_kept(
    phone: Phone, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_DRAFTS", 2)
    for number in range(3):
        await plugin.update(f"m{number}", f"half {number}" + CURSOR, reply_to=f"u{number}")
    await plugin.message("whole 0", local_id="m0", reply_to="u0")
    assert (await phone.until("message")).payload["text"] == "whole 0"


async def test_a_grant_that_ends_ends_the_reading(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    await plugin.update("m1", "one" + CURSOR, reply_to="u1")
    await phone.until("message.start")
    for link in relay.relay.hub.of_device(phone.auth["device_id"]):
        link.regrant({})
    await plugin.update("m1", "one two" + CURSOR, reply_to="u1")
    await plugin.send("typing", chat_id="home", on=True)
    await plugin.durable("ask.closed", ask_id="none")
    await phone.ping()
    assert not [frame for frame in phone.frames if frame.type in ("message.update", "typing")]


async def test_what_nobody_ended_is_ended_some_day(relay: RunningRelay, phone: Phone, plugin: Plugin) -> None:
    await plugin.update("m1", "half" + CURSOR, reply_to="u1")
    await phone.until("message.start")
    await relay.relay.threads.sweep(0.0)
    await phone.ping()
    assert not [frame for frame in phone.frames if frame.type == "message"]
    draft = next(iter(relay.relay.threads._streams._drafts.values()))
    draft.touched_at -= 901
    await relay.relay.threads.sweep(0.0)
    message = await phone.until("message")
    assert (message.payload["text"], message.payload["interrupted"]) == ("half", True)


async def test_a_restart_of_the_relay_goes_on_with_it(tmp_path: Path) -> None:
    spool = Spool()
    async with running(settings_for(tmp_path)) as relay:
        phone = await relay.connect()
        async with linked(relay.url, relay.relay.link.read(), spool) as plugin:
            await plugin.update("m1", "half" + CURSOR, reply_to="u1")
            start = await phone.until("message.start")
    async with running(settings_for(tmp_path)) as relay:
        back = await relay.connect(session_token=phone.token)
        again = await back.until("message.start")
        assert again.payload == start.payload
        async with linked(relay.url, relay.relay.link.read(), spool) as plugin:
            await plugin.update("m1", "half and half" + CURSOR, reply_to="u1")
            assert (await back.until("message.update")).payload["n"] == 2
            await plugin.message("half and half makes one", local_id="m1", reply_to="u1")
            message = await back.until("message")
            assert (message.seq, message.payload["message_id"]) == (1, start.payload["message_id"])
    async with running(settings_for(tmp_path)) as relay:
        back = await relay.connect(session_token=phone.token)
        assert (await back.next()).type == "message"
        assert (await back.next()).type == "synced"
        await back.ping()
        assert "message.start" not in [frame.type for frame in back.frames]


async def test_kill_9_at_any_moment_neither_loses_nor_doubles(tmp_path: Path) -> None:
    """The relay is killed with frames of the plugin in every state: not read, stored, and answered."""
    process, spool, said = RelayProcess(tmp_path / "data", HERMES_DASHBOARD_URL=""), Spool(), []
    await process.start()
    try:
        token = await _pair(process)
        link_token = (process.data_dir / "link-token").read_text().strip()
        for round_ in range(4):
            async with open_link(process.url, link_token, spool) as plugin:
                await plugin.hello()
                for number in range(20):
                    said.append(f"{round_}.{number}")
                    frame = spool.add("message", chat_id="home", local_id=said[-1], text=said[-1])
                    await plugin.socket.send(json.dumps(frame))
                for _ in range(round_ * 6):
                    await plugin.next()
                await process.kill()
            await process.start()
        async with linked(process.url, link_token, spool) as plugin:
            await plugin.update("written", "half" + CURSOR, reply_to="u1")
            await plugin.message("last")
            assert not spool.frames
            while not _drafts(process):  # at the latest after two seconds
                await plugin.durable("ask.closed", ask_id="none")
            await process.kill()
        await process.start()
        async with open_socket(process.url) as phone:
            await authenticate(phone, session_token=token)
            assert (await phone.until("message.start")).payload["text"] == "half"
            kept = [frame for frame in phone.frames if frame.type == "message"]
            assert [frame.payload["text"] for frame in kept] == [*said, "last"]
            assert [frame.seq for frame in kept] == list(range(1, len(said) + 2))
            async with linked(process.url, link_token, spool, restarted=True) as plugin:
                await plugin.durable("interrupted", chat_id="home", local_id="written")
                assert (await phone.until("message")).payload["interrupted"] is True
    finally:
        await process.stop()


def _drafts(process: RelayProcess) -> int:
    with sqlite3.connect(f"file:{process.data_dir / 'talaria.db'}?mode=ro", uri=True) as db:
        return int(db.execute("SELECT count(*) FROM drafts").fetchone()[0])


async def _pair(process: RelayProcess) -> str:
    """A device; the token of its session."""
    headers = {"Authorization": f"Bearer {process.operator}"}
    async with httpx.AsyncClient(base_url=process.url, headers=headers, trust_env=False) as http:
        code = (await http.post("/pairing/mint", json={})).json()["code"]
    async with open_socket(process.url) as phone:
        return (await authenticate(phone, pairing_code=code)).token


async def test_what_is_forgotten_is_not_stored_either(
    relay: RunningRelay, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_CHARS", 1000)
    monkeypatch.setattr(streams, "MAX_TEXT", 600)
    for number in range(4):
        await plugin.update(f"m{number}", f"{number}" * 5000)
        await plugin.message("one after the other", local_id="other")
        await relay.relay.threads._store_drafts()
    assert [draft["text"] for draft in await relay.relay.db.read(store.drafts)] == ["3" * 600]
