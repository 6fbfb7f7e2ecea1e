"""What devices say in conversations: turns, which `turns` stores and runs."""

from __future__ import annotations

from app.channels.base import Call, Channel, receives
from app.channels.later import Later
from app.errors import NotSupported, PayloadInvalid
from app.tasks import Supervisor
from app.turns.runner import Turns
from app.wire.payloads import ChatSend, ChatStop, ChatWatch


class Chat(Channel):
    name = "chat"
    grant = "chat"

    def __init__(self, turns: Turns, tasks: Supervisor) -> None:
        self._turns = turns
        self._later = Later(tasks)

    @receives("chat.send", ChatSend)
    async def send(self, payload: ChatSend, call: Call) -> None:
        supports = call.peer.supports
        if not (supports.turns or supports.delivery or supports.typed_stream_events):
            raise NotSupported("Update this app: it does not say supports.typed_stream_events, and would hear nothing.")
        await self._turns.send(call.peer, payload, call.frame.id, lambda answer: call.answer("chat.accepted", answer))

    @receives("chat.watch", ChatWatch)
    async def watch(self, payload: ChatWatch, call: Call) -> None:
        _name_one(payload)
        await self._turns.watch(call.peer, payload.session_id, payload.turn_id, call.frame.id)

    @receives("chat.unwatch", ChatWatch)
    def unwatch(self, payload: ChatWatch, call: Call) -> None:
        _name_one(payload)
        self._turns.unwatch(call.peer, payload.session_id, payload.turn_id)

    @receives("chat.stop", ChatStop)
    def stop(self, payload: ChatStop, call: Call) -> None:
        self._later(self._stop(payload, call), call)

    async def _stop(self, asked: ChatStop, call: Call) -> None:
        call.answer("chat.stopped", await self._turns.stop(call.peer, asked.turn_id, call.frame.id))


def _name_one(payload: ChatWatch) -> None:
    if payload.session_id is None and payload.turn_id is None:
        raise PayloadInvalid("session_id or turn_id is needed")
