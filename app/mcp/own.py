"""The tools that are no command to a phone: a message to the owner, what apps have posted, which phones there are."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_types import CallToolResult

from app.bootstrap import Relay
from app.delivery.drafts import Draft
from app.mcp.marks import said
from app.mcp.tool import Arguments, Tool

MAX_TITLE = 500  # characters, as of any message
MAX_NOTIFICATIONS = 100


class Own:
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def tools(self) -> Iterator[Tool]:
        yield Tool(
            name="message_owner", run=self._message, reaches_out=False,
            description="Send the owner a message. Their phones keep it until it is read, and are woken for it.",
            properties={
                "text": {"type": "string", "pattern": r"\S", "description": "the message"},
                "title": {"type": "string", "maxLength": MAX_TITLE, "description": "a line above it"},
                "wake": {"type": "boolean", "description": "false: a phone that sleeps is not woken for it"},
                "device": {"type": "string", "description": "the id of one phone; all of them if unsaid"},
            },
            required=("text",),
        )  # fmt: skip

    async def _message(self, arguments: Arguments, caller: str) -> CallToolResult:
        draft = Draft(
            text=arguments["text"], title=arguments.get("title"), device_id=arguments.get("device"),
            wake=arguments.get("wake", True), source="tool",
        )  # fmt: skip
        return said(await self._relay.messages.send(draft, sender=caller))
