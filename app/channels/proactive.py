"""Messages as older clients know them: subscribed to, answered, taken back. The frames go out through the pump."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.channels.base import Call, Channel, receives
from app.clock import Clock
from app.delivery.messages import Messages
from app.delivery.replies import Replies
from app.wire.payloads import ProactiveCancel, ProactiveReply


class Proactive(Channel):
    name = "proactive"
    grant = "chat"

    def __init__(self, messages: Messages, replies: Replies, clock: Clock) -> None:
        self._messages, self._replies, self._clock = messages, replies, clock

    @receives("proactive.subscribe", None)
    async def subscribe(self, payload: Mapping[str, Any], call: Call) -> None:
        """A client that acknowledges gets messages anyway, as `message`; for it this changes nothing."""
        await call.peer.subscribe()
        call.answer("proactive.subscribed", {"ts": int(self._clock.now() * 1000)})
        call.peer.ring()

    @receives("proactive.unsubscribe", None)
    def unsubscribe(self, payload: Mapping[str, Any], call: Call) -> None:
        call.peer.unsubscribe()

    @receives("proactive.reply", ProactiveReply)
    async def reply(self, reply: ProactiveReply, call: Call) -> None:
        received = await self._replies.receive(call.peer.device_id, reply, call.frame.id)
        call.answer("proactive.reply.ack", received)

    @receives("proactive.cancel", ProactiveCancel)
    async def cancel(self, asked: ProactiveCancel, call: Call) -> None:
        await self._messages.cancel(asked.message_id)
