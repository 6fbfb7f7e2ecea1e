"""The agent link itself: who gets in, what a connection may say, and what becomes of frames when it is cut."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.errors import StorageFull
from app.hermes.link.connection import LinkLimits
from app.sessions.operator import LinkToken
from tests.link import COMMANDS, Spool, linked, open_link
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for


def token_of(relay: RunningRelay) -> str:
    return relay.relay.link.read()


async def refused(relay: RunningRelay, token: str | None) -> int:
    with pytest.raises(InvalidStatus) as found:
        async with open_link(relay.url, token):
            pass
    return found.value.response.status_code


async def connected(relay: RunningRelay) -> Phone:
    phone = await relay.connect()
    await phone.until("synced")
    return phone


# who gets in


async def test_only_the_link_token_opens_it(relay: RunningRelay) -> None:
    phone = await relay.connect()
    operator = relay.operator()["Authorization"].removeprefix("Bearer ")
    for token in (None, "nonsense", operator, phone.token):
        assert await refused(relay, token) == 401
    async with linked(relay.url, token_of(relay)) as plugin:
        assert plugin.welcome == {
            "type": "welcome", "version": 1, "relay_id": phone.auth["relay_id"], "received": 0, "home": "home",
            "max_text": 262144, "refused": [],
        }  # fmt: skip


async def test_guessing_the_token_is_limited(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, TRUSTED_PROXIES="127.0.0.1/32")) as relay:
        headers = {"X-Forwarded-For": "203.0.113.9"}
        statuses = []
        for number in range(7):
            with pytest.raises(InvalidStatus) as found:
                async with _dial(relay, f"talaria-link-guess-{number}", headers):
                    pass
            statuses.append(found.value.response.status_code)
        assert statuses == [401] * 5 + [429] * 2


def _dial(relay: RunningRelay, token: str, headers: dict[str, str]) -> Any:
    url = relay.url.replace("http", "ws", 1) + "/agent/link"
    return connect(url, additional_headers=headers | {"Authorization": f"Bearer {token}"})


async def test_a_token_that_was_exchanged_closes_the_link(relay: RunningRelay) -> None:
    relay.relay.agent_link._limits = LinkLimits(recheck_seconds=0.01)
    old = token_of(relay)
    async with linked(relay.url, old) as plugin:
        new = LinkToken.rotate(relay.relay.settings.server.data_dir)
        assert await plugin.closed() == (4401, "the link token was exchanged")
        assert await refused(relay, old) == 401
    async with linked(relay.url, new) as plugin:
        assert (await plugin.message("hi"))["type"] == "ok"


async def test_another_version_is_refused(relay: RunningRelay) -> None:
    async with open_link(relay.url, token_of(relay)) as plugin:
        await plugin.send("hello", version=2, spool="s")
        said = await plugin.next()
        assert (said["type"], said["code"], said["version"]) == ("refused", "link_version", 1)
        assert (await plugin.closed())[0] == 4406


async def test_a_newer_plugin_takes_over(relay: RunningRelay) -> None:
    spool = Spool()
    async with linked(relay.url, token_of(relay), spool) as older, linked(relay.url, token_of(relay), spool) as newer:
        assert (await older.closed())[0] == 4409
        assert (await newer.message("hi"))["type"] == "ok"
        phone = await connected(relay)
        assert phone.auth["upstream"]["gateway"] == {"state": "up", "version": "0.19.0"}


async def test_hello_comes_first_and_once(relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as hasty:
        hasty.setattr(relay.relay.agent_link, "_limits", LinkLimits(hello_seconds=0.05))
        async with open_link(relay.url, token_of(relay)) as plugin:
            assert (await plugin.closed())[0] == 4408
    async with open_link(relay.url, token_of(relay)) as plugin:
        await plugin.send("typing", chat_id="home", on=True)
        assert (await plugin.closed())[0] == 1008
    async with open_link(relay.url, token_of(relay)) as plugin:
        await plugin.socket.send("no json")
        assert (await plugin.closed())[0] == 1008
    async with linked(relay.url, token_of(relay)) as plugin:
        await plugin.send("hello", version=1, spool="s")
        assert (await plugin.closed())[0] == 1008


async def test_the_state_of_the_gateway(relay: RunningRelay) -> None:
    phone = await relay.connect()
    state = phone.auth["upstream"]["gateway"]
    assert (state["state"], state["code"]) == ("off", "gateway_off")
    async with linked(relay.url, token_of(relay)) as plugin:
        changed = await phone.until("upstream")
        assert changed.payload["gateway"] == {"state": "up", "version": "0.19.0"}
        phone = await relay.connect()
        assert phone.auth["upstream"]["gateway"] == {"state": "up", "version": "0.19.0"}
        commands = (await phone.ask("messages", "commands.list")).payload["commands"]
        assert commands == [COMMANDS[0], {"name": "stop", "description": ""}]
    await plugin.closed()
    assert (await phone.until("upstream")).payload["gateway"]["code"] == "gateway_away"
    assert (await relay.connect()).auth["upstream"]["gateway"]["state"] == "down"
    assert (await phone.ask("messages", "commands.list")).payload["commands"] == commands


# frames


async def test_what_cannot_be_read_is_refused_for_good_or_ignored(relay: RunningRelay) -> None:
    async with linked(relay.url, token_of(relay)) as plugin:
        for raw in ("[]", "}", '{"type": 7}', '{"type": "update"}', '{"type": "from.the.future", "x": 1}'):
            await plugin.socket.send(raw)
        for frame in ({"type": "message", "n": 1}, {"type": "from.the.future", "n": 2}):
            await plugin.socket.send(json.dumps(frame))
            said = await plugin.next()
            assert (said["type"], said["n"], said["code"]) == ("no", frame["n"], "frame_invalid")
        plugin.spool.last = 2
        assert (await plugin.message("still here"))["type"] == "ok"
        spool = plugin.spool
    async with linked(relay.url, token_of(relay), spool) as plugin:  # had it been cut off before it heard of them
        assert [said["n"] for said in plugin.welcome["refused"]] == [1, 2]


async def test_an_unknown_chat_is_refused_and_the_refusal_outlives_the_connection(relay: RunningRelay) -> None:
    phone, spool = await connected(relay), Spool()
    device = phone.auth["device_id"]
    async with linked(relay.url, token_of(relay), spool) as plugin:
        for chat_id in ("nowhere", "device:nobody"):  # a device that was revoked is none either
            said = await plugin.message("hi", chat_id=chat_id)
            assert (said["type"], said["code"]) == ("no", "chat_unknown")
            assert "threads.list" in said["message"]
        asked = await plugin.durable("ask", ask_id="a", kind="question", chat_id="nowhere", text="?", timeout_s=60)
        assert asked["code"] == "chat_unknown"
        assert (await plugin.message("hi", chat_id=f"device:{device}"))["type"] == "ok"
        spool.add("message", chat_id="nowhere", local_id="lost", text="x")
        await plugin.socket.send(json.dumps(spool.frames[spool.last]))
        await plugin.until("no")
    async with linked(relay.url, token_of(relay), spool) as plugin:
        assert plugin.welcome["received"] == 5
        assert [one["n"] for one in plugin.welcome["refused"]] == [1, 2, 3, 5]
        for n in (1, 4):  # a plugin that did not hear of it asks again
            await plugin.send("message", n=n, chat_id="nowhere", local_id="again", text="x")
        assert [(await plugin.next())["type"] for _ in range(2)] == ["no", "ok"]
    assert (await phone.until("message")).payload["chat_id"] == f"device:{device}"


async def test_numbers_with_a_gap_are_taken(relay: RunningRelay) -> None:
    """A relay that was restored from a backup has forgotten some."""
    async with linked(relay.url, token_of(relay)) as plugin:
        plugin.spool.last = 41
        assert (await plugin.message("hi"))["n"] == 42
        await plugin.hang_up()
    async with linked(relay.url, token_of(relay), plugin.spool) as plugin:
        assert plugin.welcome["received"] == 42


@pytest.mark.parametrize("type_", ["message", "done"])
async def test_what_the_relay_fails_on_is_refused_for_good(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError("a fault of the relay")

    name = "add" if type_ == "message" else "through"
    async with linked(relay.url, token_of(relay)) as plugin:
        monkeypatch.setattr(f"app.threads.store.{name}", fails)
        said = await plugin.durable(type_, chat_id="home", local_id="m", text="x", inbound_id="i")
        assert (said["type"], said["code"]) == ("no", "internal_error")
        monkeypatch.undo()
        assert (await plugin.message("hi"))["type"] == "ok"


async def test_a_full_disk_breaks_the_link_off_and_loses_nothing(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StorageFull()

    spool = Spool()
    async with linked(relay.url, token_of(relay), spool) as plugin:
        monkeypatch.setattr("app.threads.store.add", full)
        await plugin.socket.send(json.dumps(spool.add("message", chat_id="home", local_id="m", text="kept")))
        assert await plugin.closed() == (1011, "storage_full")
        monkeypatch.undo()
    phone = await connected(relay)
    async with linked(relay.url, token_of(relay), spool) as plugin:
        assert (await plugin.until("ok"))["n"] == 1
    assert (await phone.until("message")).payload["text"] == "kept"


async def test_a_message_that_is_too_big_is_refused(relay: RunningRelay) -> None:
    async with linked(relay.url, token_of(relay)) as plugin:
        said = await plugin.message("x" * 1000 * 1000, title="t" * 500)
        assert said["type"] == "ok"
        await plugin.socket.send(json.dumps({"type": "message", "n": 2, "text": "x" * 1024 * 1024}))
        assert (await plugin.closed())[0] == 1009


async def test_a_plugin_that_does_not_read_is_cut_off(relay: RunningRelay) -> None:
    relay.relay.agent_link._limits = LinkLimits(stall_seconds=0.1, outgoing_bytes=64 * 1024)
    phone = await connected(relay)
    async with open_link(relay.url, token_of(relay)) as plugin:
        await plugin.hello()
        plugin.socket.transport.pause_reading()
        for number in range(200):  # each thread is given one
            await phone.send("messages", "message.send", text="x" * 60_000, thread_id=f"t{number}")
            if number % 20 == 0:
                await phone.ping()
            if not relay.relay.agent_link.is_up:
                break
        async with asyncio.timeout(10):
            while relay.relay.agent_link.is_up:
                await phone.ping()


async def test_every_frame_is_settled_once_wherever_the_link_is_cut(relay: RunningRelay) -> None:
    """The plugin dies after any number of bytes it has read or written: it sends again what has no verdict."""
    phone, spool = await connected(relay), Spool()
    for number in range(12):
        spool.add("message", chat_id="home", local_id=f"m{number}", text=f"t{number}")
    for cut in range(12):
        async with open_link(relay.url, token_of(relay), spool) as plugin:
            await plugin.send("hello", version=1, spool=spool.id)
            welcome = await plugin.until("welcome")
            left = [frame for n, frame in sorted(spool.frames.items()) if n > welcome["received"]]
            for frame in left[: cut % 4 + 1]:
                await plugin.socket.send(json.dumps(frame))
            for _ in range(cut % 3):  # some verdicts are read, the others are lost with the link
                if left:
                    await plugin.next()
            await plugin.hang_up()
    async with linked(relay.url, token_of(relay), spool) as plugin:
        while spool.frames:
            await plugin.next()
        await plugin.message("last", local_id="end")
    await phone.until("message", lambda frame: frame.payload["text"] == "last")
    said = [frame.payload["text"] for frame in phone.frames if frame.type == "message"]
    assert said == [*(f"t{number}" for number in range(12)), "last"]
