"""The tools that are no command to a phone: a message to the owner, what apps have posted, which phones there are."""

from __future__ import annotations

from collections.abc import Iterator

from mcp_types import CallToolResult

from app.bootstrap import Relay
from app.channels.service import as_json
from app.delivery.drafts import Draft
from app.mcp.marks import said, untrusted
from app.mcp.tool import DATA, Arguments, Tool
from app.wire.notifications import MAX_LIMIT

MAX_TITLE = 500  # characters, as of any message
NOTIFICATIONS = 20  # if unsaid: a model pays for each


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

        yield Tool(
            name="devices", run=self._devices, properties={}, required=(), reads=True, reaches_out=False,
            description="The phones that can be seen and used, whether each is connected, and what it can do.",
        )  # fmt: skip
        yield Tool(
            name="notifications", run=self._notifications, reads=True, reaches_out=False,
            description=f"What apps have posted on the owner's phones lately, the newest first.{DATA}",
            properties={
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": "how many at most"},
                "device": {"type": "string", "description": "the id of one phone; all of them if unsaid"},
            },
            required=(),
        )  # fmt: skip

    async def _devices(self, arguments: Arguments, caller: str) -> CallToolResult:
        bridge = self._relay.bridge
        await bridge.refresh()
        found = [bridge.view(device) for device in bridge.devices.latest_first()]
        return untrusted("the phones", found)

    async def _notifications(self, arguments: Arguments, caller: str) -> CallToolResult:
        found = await self._relay.notifications.recent(
            arguments.get("limit", NOTIFICATIONS), device_id=arguments.get("device")
        )
        return untrusted("apps of the phones", [as_json(one) for one in found])

    async def _message(self, arguments: Arguments, caller: str) -> CallToolResult:
        draft = Draft(
            text=arguments["text"], title=arguments.get("title"), device_id=arguments.get("device"),
            wake=arguments.get("wake", True), source="tool",
        )  # fmt: skip
        return said(await self._relay.messages.send(draft, sender=caller))
