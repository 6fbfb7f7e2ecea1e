"""A real Hermes that sees and uses a phone: Hermes → /mcp → the relay → a phone, and back."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.bridge.phone_simulator import PhoneSimulator, png
from tests.hermes.gateway_lab import GatewayLab, Owner
from tests.hermes.hermes_lab import run_lab

pytestmark = pytest.mark.hermes

TOOL = "mcp__talaria__"  # how Hermes names them


@pytest.fixture(scope="module", autouse=True)
def tools(gateway: GatewayLab) -> None:
    """As the owner gives them to the agent."""
    gateway.command.run("hermes-plugin", "install", "--hermes-home", str(gateway.home), "--mcp")
    run_lab("restart", "gateway", root=gateway.lab.root)


@asynccontextmanager
async def bridged(gateway: GatewayLab) -> AsyncIterator[PhoneSimulator]:
    async with gateway.phone(device_name="Pixel Test") as owner:
        simulator = PhoneSimulator(owner.phone, gateway.command.url)
        async with simulator.answering():
            yield simulator


async def called(gateway: GatewayLab, owner: Owner, marker: str, tool: str, **arguments: object) -> dict[str, str]:
    """What the model was told that the tool returned."""
    await owner.says(f"{marker}\nTOOL:{TOOL}{tool}:{json.dumps(arguments)}")
    await owner.hears("done after 1 result(s)")
    (after,) = [call for call in gateway.lab.model_calls(marker) if call["after_tool"]]
    found = re.search(r"^\{.*\}$", after["results"][0], re.MULTILINE)  # Hermes puts a warning of its own around it
    assert found is not None, after
    result: dict[str, str] = json.loads(found[0])
    return result


async def test_the_tools_are_offered_and_a_screenshot_comes_as_a_picture(gateway: GatewayLab, owner: Owner) -> None:
    async with bridged(gateway):
        told = (await called(gateway, owner, "look at it", "screenshot"))["result"]
    (request, _) = gateway.lab.model_calls("look at it")
    assert {f"{TOOL}{name}" for name in ("screen", "tap", "call", "message_owner")} <= set(request["tools"])
    assert told.startswith("Untrusted: the picture below shows the screen of the phone.")
    path = re.search(r"MEDIA:(\S+\.png)", told)
    assert path is not None, told
    assert Path(path[1]).read_bytes() == png()


async def test_the_phone_is_used_and_seen(gateway: GatewayLab, owner: Owner) -> None:
    async with bridged(gateway) as phone:
        await called(gateway, owner, "open the notes", "open_app", package="com.example.notes")
        await called(gateway, owner, "write it down", "type", text="buy milk")
        told = (await called(gateway, owner, "what is there", "screen"))["result"]
        assert phone.typed == "buy milk"
    assert re.search(r"\n\[([0-9a-f]{16})\n.*buy milk.*\n\1\]$", told), told


async def test_a_failure_reaches_the_model_with_its_code(gateway: GatewayLab, owner: Owner) -> None:
    async with bridged(gateway) as phone:
        phone.refused.add("/location")
        told = await called(gateway, owner, "where is it", "location")
    assert told["error"].startswith("phone_refused: the phone did not do it (403, bridge_capability_denied)\nUntrusted")


async def test_what_cannot_be_taken_back_waits_for_the_owner(gateway: GatewayLab, owner: Owner) -> None:
    async with bridged(gateway) as phone:
        await owner.says(f'call them\nTOOL:{TOOL}call:{{"number": "112"}}')
        asked = await owner.until("approval.request")
        assert "112" in asked.payload["summary"]
        assert phone.heard == []
        await owner.phone.send("chat", "approval.respond", approval_id=asked.payload["approval_id"], choice="once")
        await owner.hears("done after 1 result(s)")
        assert [command["body"] for command in phone.heard] == [{"number": "112"}]


async def test_the_agent_writes_to_the_owner(gateway: GatewayLab, owner: Owner) -> None:
    await owner.says(f'tell me\nTOOL:{TOOL}message_owner:{{"text": "the laundry is done"}}')
    heard = await owner.hears("the laundry is done")
    assert (heard.payload["text"], heard.payload["source"]) == ("the laundry is done", "tool")


async def test_a_restart_of_the_relay_is_not_noticed(gateway: GatewayLab, owner: Owner) -> None:
    gateway.kill_relay()
    gateway.begin_relay()
    await gateway.linked()
    async with gateway.phone() as back, bridged(gateway):
        told = await called(gateway, back, "and now", "press_key", key="home")
    assert json.loads(told["result"]) == {"ok": True}
