"""Commands that come by the agent link."""

from __future__ import annotations

from typing import Any

from app.bridge.commands import BY_NAME
from app.bridge.errors import CommandUnsupported
from app.bridge.service import Bridge
from app.delivery.errors import ResponseTooLarge
from app.errors import RelayError
from app.hermes.link.codec import MAX_FRAME, Commanded
from app.wire.depth import is_too_deep

ROOM = 4096  # bytes of a frame beside the result


class CommandsByLink:
    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def __call__(self, frame: Commanded) -> dict[str, Any]:
        """{status, result, device_id} or {code, message}; never raises for what may go wrong."""
        try:
            return await self._ask(frame)
        except RelayError as exc:
            return {"code": exc.code, "message": exc.message}

    async def _ask(self, frame: Commanded) -> dict[str, Any]:
        command = BY_NAME.get(frame.command)
        if command is None:
            raise CommandUnsupported(f"there is no command {frame.command!r}")
        if is_too_deep(frame.args, MAX_FRAME):
            raise CommandUnsupported("the arguments are nested too deeply")
        answer = await self._bridge.ask(
            command, frame.args, device=frame.device, caller="link", timeout_s=frame.timeout_s
        )
        if len(answer.body) > MAX_FRAME - ROOM or is_too_deep(answer.result, len(answer.body)):
            raise ResponseTooLarge(
                "the phone's answer is longer, or more deeply nested, than a frame of the link may be"
            )
        return {"status": answer.status, "result": answer.result, "device_id": answer.device_id}
