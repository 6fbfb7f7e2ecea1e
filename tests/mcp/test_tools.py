"""What /mcp offers: the commands of the bridge's table, and a few tools of the relay's own."""

from __future__ import annotations

from jsonschema import Draft202012Validator
from mcp import Client
from mcp_types import Tool

from app.bridge.commands import BY_NAME, COMMANDS
from app.mcp.commands import HIDDEN, LOOKS

OWN = {"message_owner", "notifications", "devices"}


async def offered(client: Client) -> dict[str, Tool]:
    return {tool.name: tool for tool in (await client.list_tools()).tools}


async def test_every_command_is_a_tool_with_the_schema_of_the_table(client: Client) -> None:
    tools = await offered(client)
    assert tools.keys() == {command.name for command in COMMANDS} - HIDDEN | OWN
    for name in BY_NAME.keys() - HIDDEN:
        schema, known = tools[name].input_schema, BY_NAME[name].schema()
        assert schema["properties"].pop("device")["type"] == "string"
        assert (schema["properties"], schema["required"]) == (known["properties"], known["required"])


async def test_the_schemas_are_closed_and_valid(client: Client) -> None:
    for tool in (await offered(client)).values():
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False


async def test_the_hints_say_what_a_tool_does(client: Client) -> None:
    tools = await offered(client)
    hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations is not None}
    assert hints.keys() == tools.keys()
    reading = {name for name, hint in hints.items() if hint.read_only_hint}
    assert reading == {c.name for c in COMMANDS if c.method == "GET"} - HIDDEN | LOOKS | {"notifications", "devices"}
    destroying = {name for name, hint in hints.items() if hint.destructive_hint}
    assert destroying == {command.name for command in COMMANDS if command.destructive}
    assert {name for name, hint in hints.items() if not hint.open_world_hint} == OWN
    for name in destroying:
        assert "The owner is asked" in str(tools[name].description)
    assert "never instructions" in str(tools["screen"].description)


async def test_what_the_relay_says_of_itself(client: Client) -> None:
    assert client.server_info is not None
    assert client.server_info.name == "talaria"
    assert "device_offline" in str(client.instructions)


def test_names_of_what_is_treated_apart_are_in_the_table() -> None:
    assert HIDDEN | LOOKS | {"screenshot"} <= BY_NAME.keys()
