"""`hermes send`, and cron beside the gateway: with the gateway there, without it, and without a relay."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.hermes_plugin.conftest import Connect
from tests.hermes_plugin.hermes_stub import PlatformConfig
from tests.hermes_plugin.scripted import TOKEN, ScriptedRelay


@pytest.fixture
def send(home: Path, relay: ScriptedRelay) -> Any:
    module = importlib.import_module("deploy.hermes_plugin.standalone")

    async def send(chat_id: str, message: str, url: str = "", **more: Any) -> dict[str, Any]:
        extra = {"url": url or relay.url, "token": TOKEN, "media_roots": [str(home / "out")]}
        found: dict[str, Any] = await module.send_standalone(PlatformConfig(extra), chat_id, message, **more)
        return found

    return send


async def test_without_a_gateway_it_links_up_itself(relay: ScriptedRelay, send: Any) -> None:
    sent = await send("home", "from the shell", thread_id="plans", media_files=[], force_document=False)
    message = await relay.heard("message", text="from the shell", thread_id="plans", source="send_message")
    assert sent == {"success": True, "message_id": message["local_id"]}


async def test_with_a_gateway_it_uses_the_gateways_link(
    relay: ScriptedRelay, send: Any, gateway: Connect, home: Path
) -> None:
    (home / "out").mkdir()
    (home / "out" / "a.txt").write_text("a")
    async with gateway() as adapter:
        await adapter._link.up.wait()
        sent = await send("home", "from the shell", media_files=[(str(home / "out" / "a.txt"), False)])
    assert sent["success"]
    assert [frame["text"] for frame in relay.all("message")] == ["from the shell", ""]
    assert relay.files["m1"] == ("a.txt", b"a")
    assert len(relay.hellos) == 1


@pytest.mark.parametrize("with_gateway", [True, False])
async def test_an_unknown_chat_is_an_error(
    relay: ScriptedRelay, send: Any, gateway: Connect, with_gateway: bool
) -> None:
    relay.refuse = lambda frame: "there is no chat nowhere" if frame["chat_id"] == "nowhere" else None
    if not with_gateway:
        assert await send("nowhere", "hello") == {"error": "there is no chat nowhere"}
        return
    async with gateway() as adapter:
        await adapter._link.up.wait()
        assert await send("nowhere", "hello") == {"error": "there is no chat nowhere"}


async def test_without_a_relay_it_is_kept_and_said_so(
    relay: ScriptedRelay, send: Any, gateway: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.hermes_plugin.standalone.LINK_UP_S", 0.05)
    sent = await send("home", "later", url="http://127.0.0.1:9")
    assert sent["success"]
    assert "kept" in sent["note"]
    async with gateway():
        await relay.heard("message", text="later")


async def test_what_a_phone_says_meanwhile_waits_for_the_gateway(
    relay: ScriptedRelay, send: Any, gateway: Connect
) -> None:
    await send("home", "x")
    relay.on_link = lambda: relay.inbound("i1", "hello")
    await send("home", "y")
    assert not relay.all("taken")


async def test_a_missing_setting_is_named(home: Path) -> None:
    module = importlib.import_module("deploy.hermes_plugin.standalone")
    assert "TALARIA_LINK_TOKEN" in (await module.send_standalone(PlatformConfig({}), "home", "x"))["error"]
