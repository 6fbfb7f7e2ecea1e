"""What hermes-relay's command gets that wants Hermes' own terminal interface: a no, and at once."""

from __future__ import annotations

from tests.older import connect
from tests.relay import RunningRelay


async def test_the_command_is_refused_by_name_and_stays_connected(relay: RunningRelay) -> None:
    command = await connect(relay)
    attached = await command.ask("tui", "tui.attach", {"cols": 80, "rows": 24})
    assert (attached.type, set(attached.payload)) == ("tui.attached", {"pid", "server_version"})
    ready = await command.next()
    assert (ready.channel, ready.type) == ("tui", "tui.rpc.event")
    assert ready.payload["params"] == {"type": "gateway.ready", "payload": {}}
    asked = {"jsonrpc": "2.0", "id": "r1", "method": "tools.list", "params": {}}
    answer = await command.ask("tui", "tui.rpc.request", asked)
    assert (answer.type, answer.payload["id"]) == ("tui.rpc.response", "r1")
    assert "--relay-chat" in answer.payload["error"]["message"]
    await command.send("tui", "tui.resize", {"cols": 100, "rows": 30})
    await command.send("tui", "tui.detach", {})
    await command.ping()
    assert not [frame for frame in command.frames if frame.type in ("error", "tui.error")]


async def test_who_was_not_granted_it_is_refused_alike(relay: RunningRelay) -> None:
    """It attaches before each of its commands, and none of them is to fail for that."""
    offer = await relay.relay.pairing.mint(grants={"terminal": None})
    command = await connect(relay, pairing_code=offer.code)
    assert (await command.ask("tui", "tui.attach", {})).type == "tui.attached"
