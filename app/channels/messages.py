"""What devices say and ask in chats of Hermes' messaging gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.channels.base import Call, Channel, receives
from app.threads.service import Threads
from app.wire.threads import MessageSend, ThreadsHistory, ThreadsList, ThreadsRead


class GatewayMessages(Channel):
    name = "messages"
    grant = "chat"

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    @receives("message.send", MessageSend)
    async def send(self, payload: MessageSend, call: Call) -> None:
        call.answer("message.accepted", await self._threads.send(call.peer, payload, call.frame.id))

    @receives("threads.list", ThreadsList)
    async def threads(self, payload: ThreadsList, call: Call) -> None:
        call.answer("threads.list", await self._threads.threads(call.peer.device_id, payload))

    @receives("threads.history", ThreadsHistory)
    async def history(self, payload: ThreadsHistory, call: Call) -> None:
        call.answer("threads.history", await self._threads.history(call.peer.device_id, payload))

    @receives("threads.read", ThreadsRead)
    async def read(self, payload: ThreadsRead, call: Call) -> None:
        call.answer("threads.read", await self._threads.read(call.peer.device_id, payload))

    @receives("commands.list", None)
    def commands(self, payload: Mapping[str, Any], call: Call) -> None:
        call.answer("commands", {"commands": self._threads.commands()})
