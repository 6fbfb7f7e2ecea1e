"""Commands by the agent link."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bridge.conftest import Simulate
from tests.link import Plugin, linked
from tests.relay import RunningRelay


async def result(plugin: Plugin, call_id: str = "c1") -> dict[str, Any]:
    said = await plugin.until("result", lambda frame: frame["call_id"] == call_id)
    return {name: value for name, value in said.items() if name not in ("type", "call_id")}


async def test_a_command_and_its_result(relay: RunningRelay, simulate: Simulate) -> None:
    phone = await simulate(device_name="Pixel")
    async with linked(relay.url, relay.relay.link.read()) as plugin:
        await plugin.send("command", call_id="c1", command="tap", args={"x": 1}, device="pixel")
        assert await result(plugin) == {
            "status": 200, "result": {"ok": True, "echo": {"x": 1}}, "device_id": phone.device_id,
        }  # fmt: skip
        assert relay.relay.bridge.activity.latest(1)[0]["caller"] == "link"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"command": "fly"}, "not_supported"),
        ({"command": "tap", "device": "nosuch"}, "device_unknown"),
        ({"command": "tap", "timeout_s": 0.05}, "timeout"),
    ],
)
async def test_a_command_that_fails_says_why(
    relay: RunningRelay, simulate: Simulate, said: dict[str, Any], code: str
) -> None:
    phone = await simulate()
    phone.silent = True
    async with linked(relay.url, relay.relay.link.read()) as plugin:
        await plugin.send("command", call_id="c1", **said)
        assert (await result(plugin))["code"] == code


async def test_a_result_that_no_frame_of_the_link_can_hold(relay: RunningRelay, simulate: Simulate) -> None:
    phone = await simulate()
    phone.replies["/screen"] = lambda body: (200, {"nodes": "x" * 1024 * 1024})
    async with linked(relay.url, relay.relay.link.read()) as plugin:
        await plugin.send("command", call_id="c1", command="screen")
        assert (await result(plugin))["code"] == "response_too_large"
        nested: Any = 1
        for _ in range(253):
            nested = [nested]
        phone.replies["/screen"] = lambda body: (200, {"nodes": nested})
        await plugin.send("command", call_id="c2", command="screen")
        assert (await result(plugin, "c2"))["code"] == "response_too_large"


async def test_only_so_many_wait_for_a_result(relay: RunningRelay, simulate: Simulate) -> None:
    phone = await simulate()
    phone.silent = True
    async with linked(relay.url, relay.relay.link.read()) as plugin:
        for n in range(33):
            await plugin.send("command", call_id=f"c{n}", command="tap")
        assert (await result(plugin, "c32"))["code"] == "overloaded"
        first = await phone.command()
        await phone.respond(first["request_id"], 200, {"n": 0})
        assert (await result(plugin, "c0"))["result"] == {"n": 0}


async def test_what_is_asked_by_a_link_that_ends_is_given_up(relay: RunningRelay, simulate: Simulate) -> None:
    phone = await simulate()
    phone.silent = True
    async with linked(relay.url, relay.relay.link.read()) as plugin:
        await plugin.send("command", call_id="c1", command="tap")
        await phone.command()
        await plugin.hang_up()
    while relay.relay.agent_link.is_up:
        await relay.relay.db.read(lambda tx: None)
    await relay.relay.db.read(lambda tx: None)
    (entry,) = relay.relay.bridge.activity.latest(1)
    assert (entry["error"], entry["decision"]) == ("device_offline", "error")
