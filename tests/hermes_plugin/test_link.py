"""How the plugin dials: who it is refused by, and what it does then."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from functools import partial
from typing import Any

import pytest

from tests.hermes_plugin.conftest import Connect
from tests.hermes_plugin.hermes_stub import Asks
from tests.hermes_plugin.scripted import TOKEN, ScriptedRelay


class Sleeps:
    """Stands for the waiting between two tries: notes how long, and lets the link go on when the test says so."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[float] = asyncio.Queue()
        self.go = asyncio.Semaphore(0)

    async def __call__(self, seconds: float) -> None:
        self.asked.put_nowait(seconds)
        await self.go.acquire()

    async def next(self) -> float:
        async with asyncio.timeout(20):
            seconds = await self.asked.get()
        self.go.release()
        return seconds


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch, home: Any) -> Sleeps:
    from deploy.hermes_plugin.link import Link

    sleeps = Sleeps()
    monkeypatch.setattr("deploy.hermes_plugin.adapter.Link", partial(Link, sleep=sleeps))
    return sleeps


async def test_the_delay_grows_to_half_a_minute_with_jitter(gateway: Connect, sleeps: Sleeps) -> None:
    async with gateway(url="http://127.0.0.1:9"):
        delays = [await sleeps.next() for _ in range(8)]
    for delay, top in zip(delays, [1, 2, 4, 8, 16, 30, 30, 30], strict=True):
        assert top / 2 <= delay <= top
    assert len({round(delay % 1, 6) for delay in delays}) > 1


async def test_a_wrong_token_is_named_and_tried_rarely(
    relay: ScriptedRelay, gateway: Connect, sleeps: Sleeps, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(token="another"):
        assert await sleeps.next() >= 30
    assert "does not accept TALARIA_LINK_TOKEN" in caplog.text
    assert "another" not in caplog.text
    assert relay.hellos == []


async def test_a_version_that_is_refused_says_why(
    relay: ScriptedRelay, gateway: Connect, sleeps: Sleeps, caplog: pytest.LogCaptureFixture
) -> None:
    relay.turn_away = "install the plugin of this relay"
    async with gateway():
        assert await sleeps.next() >= 30
    assert "install the plugin of this relay" in caplog.text


async def test_a_superseded_gateway_leaves_the_link_to_the_other(
    relay: ScriptedRelay, gateway: Connect, sleeps: Sleeps, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway():
        await relay.until(lambda: relay.socket)
        await relay.hang_up(4409)
        assert await sleeps.next() >= 30
    assert "another Hermes gateway" in caplog.text


async def test_a_second_gateway_of_the_same_home_waits(
    relay: ScriptedRelay, gateway: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway() as first:
        await first._link.up.wait()
        async with gateway() as second:
            assert (await second.send("home", "from the second")).success
            await relay.heard("message", text="from the second")  # the first sends it
    assert len(relay.hellos) == 1


async def test_refusals_that_the_welcome_tells_are_heard(relay: ScriptedRelay, gateway: Connect) -> None:
    async with gateway(url="http://127.0.0.1:9") as adapter:
        await adapter.send("device:gone", "hello")
        spool = await adapter._spool.do(type(adapter._spool).identity)
    relay.received[spool] = 1
    relay.welcome = {"refused": [{"n": 1, "code": "chat_unknown", "message": "that device is gone"}]}
    async with gateway():
        report = await relay.heard("message", chat_id="home")
    assert "that device is gone" in report["text"]
    assert report["n"] == 2


async def test_a_spool_from_a_backup_becomes_a_new_one(relay: ScriptedRelay, gateway: Connect) -> None:
    async with gateway(url="http://127.0.0.1:9") as adapter:
        await adapter.send("home", "written after the backup was taken")
        spool = await adapter._spool.do(type(adapter._spool).identity)
    relay.received[spool] = 70
    async with gateway():
        await relay.heard("message", text="written after the backup was taken", n=1)
    assert relay.hellos[-1]["spool"] != spool


async def test_an_upload_that_fails_for_now_is_tried_again(
    relay: ScriptedRelay, gateway: Connect, sleeps: Sleeps, home: Any
) -> None:
    (home / "a.txt").write_text("a")
    relay.upload_status = 503
    async with gateway(media_roots=[str(home)]) as adapter:
        await adapter._link.up.wait()
        assert (await adapter.send_document(chat_id="home", file_path=str(home / "a.txt"))).success
        relay.upload_status = 200
        await sleeps.next()
        message = await relay.heard("message")
    assert message["media"] == ["m1"]


async def test_no_secret_is_logged(relay: ScriptedRelay, gateway: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "deploy.hermes_plugin")
    async with gateway() as adapter:
        await relay.until(lambda: relay.socket)
        await adapter.send("home", "private words")
    assert TOKEN not in caplog.text
    assert "private words" not in caplog.text


async def test_a_spool_that_fails_does_not_end_the_link_for_ever(
    relay: ScriptedRelay, gateway: Connect, sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway() as adapter:
        await adapter._link.up.wait()

        def full(*_: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(type(adapter._spool), "settle", full)
            assert (await adapter.send("home", "one", metadata={"notify": True})).success
            async with asyncio.timeout(20):
                await sleeps.asked.get()
        sleeps.go.release()
        await adapter._link.up.wait()
        assert (await adapter.send("home", "two", metadata={"notify": True})).success
        await relay.heard("message", text="two")


async def test_a_frame_too_big_for_the_link_is_refused_and_holds_nothing_up(relay: ScriptedRelay, adapter: Any) -> None:
    verdict = await adapter._link.keep({"type": "ask", "ask_id": "a", "text": "x" * 1024 * 1024})
    assert (verdict.ok, verdict.code) == (False, "frame_too_big")
    assert relay.all("ask") == []
    assert not await adapter._spool.do(type(adapter._spool).pending, 0)


async def test_a_huge_approval_is_cut_to_what_a_frame_takes(relay: ScriptedRelay, adapter: Any, asks: Asks) -> None:
    asks.approvals.append("key")
    asked = await adapter.send_exec_approval("home", "\x00" * 2_000_000, "key", "\x00" * 2_000_000)
    assert asked.success
    assert len((await relay.heard("ask"))["text"]) == 50_000
