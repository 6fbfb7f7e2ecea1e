"""Whatever tools are called with: a result or a typed error, and a relay that goes on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.bridge.commands import COMMANDS
from app.mcp.commands import HIDDEN
from tests.api.conftest import client_of
from tests.bridge.phone_simulator import simulated
from tests.relay import running, settings_for

NAMES = sorted({command.name for command in COMMANDS} - HIDDEN | {"message_owner", "notifications", "devices", "fly"})
FIELDS = sorted({param.name for command in COMMANDS for param in command.params} | {"device", "limit", "title", "wake"})
TEXT = st.text(st.characters(), max_size=30)  # with halves of characters
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.just(10**30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = (
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4) | st.dictionaries(TEXT, VALUES, max_size=3) | VALUES
)
TYPED = {
    "payload_invalid", "phone_refused", "no_picture", "not_supported", "device_unknown", "no_devices",
    "response_too_large", "media_unknown",
}  # fmt: skip


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}
}  # fmt: skip
NEWEST = "2026-07-28"  # has no handshake: each request says who asks


@pytest.mark.parametrize("version", ["2025-11-25", NEWEST])
async def test_every_call_ends_typed_and_the_relay_lives(tmp_path: Path, version: str) -> None:
    examples: list[tuple[str, Any]] = []

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.sampled_from(NAMES), ARGUMENTS)
    def collect(name: str, arguments: Any) -> None:
        examples.append((name, arguments))

    collect()
    async with running(settings_for(tmp_path, BRIDGE_UNATTENDED="1")) as relay, simulated(relay) as phone:
        headers = relay.operator() | {"MCP-Protocol-Version": version, "Content-Type": "application/json"}
        headers |= {"Accept": "application/json, text/event-stream", "Mcp-Method": "tools/call"}
        async with client_of(relay, headers=headers) as http:
            ended: Counter[str] = Counter()
            for number, (name, arguments) in enumerate(examples):
                params = {"name": name, "arguments": arguments, "_meta": META if version == NEWEST else {}}
                call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
                answer = await http.post("/mcp", content=json.dumps(call), headers={"Mcp-Name": name})
                assert answer.status_code in (200, 400), (params, answer.text)
                said = result_of(answer.text)
                ended["refused" if "error" in said else "typed" if said["result"].get("isError") else "done"] += 1
                if "error" in said:
                    assert said["error"]["code"] in (-32602, -32700, -32600), (params, said)
                elif said["result"].get("isError"):
                    assert said["result"]["content"][0]["text"].partition(":")[0] in TYPED, (params, said)
            assert ended["typed"] > 20, ended
        assert not phone.phone.socket.close_code


def result_of(text: str) -> dict[str, Any]:
    """Of a JSON answer, or of the only message of a stream."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    found: dict[str, Any] = json.loads(data[-1] if data else text)
    return found
