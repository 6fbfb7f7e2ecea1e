"""The link itself: liveness, acknowledgements and replays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.channels.base import Call, Channel, receives
from app.clock import Clock
from app.wire.payloads import Ack, Sync


class System(Channel):
    name = "system"
    grant = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @receives("ping", None)
    def ping(self, payload: Mapping[str, Any], call: Call) -> None:
        call.answer("pong", {"ts": payload.get("ts", self._clock.now())})

    @receives("pong", None)
    def pong(self, payload: Mapping[str, Any], call: Call) -> None:
        call.peer.pong()

    @receives("ack", Ack)
    def ack(self, ack: Ack, call: Call) -> None:
        call.peer.acknowledge(ack.epoch, ack.seq)

    @receives("sync", Sync)
    def sync(self, sync: Sync, call: Call) -> None:
        call.peer.replay(sync.after)
