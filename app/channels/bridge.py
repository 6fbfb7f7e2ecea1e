"""What a phone says of itself, and what it answers to commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.bridge.service import CHANNEL, Bridge
from app.channels.base import Call, Channel, receives
from app.wire.bridge import BridgeResponse, encoded_status


class BridgeChannel(Channel):
    name = CHANNEL
    grant = "bridge"

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    @receives("bridge.status", None)
    async def status(self, payload: Mapping[str, Any], call: Call) -> None:
        await self._bridge.heard(call.peer, encoded_status(payload))

    @receives("bridge.response", BridgeResponse)
    def response(self, payload: BridgeResponse, call: Call) -> None:
        """One that nobody waits for, or that somebody else was asked for, is ignored."""
        self._bridge.answered(call.peer, payload)
