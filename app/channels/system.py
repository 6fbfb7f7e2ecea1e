"""The link itself: liveness, acknowledgements and replays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.channels.base import Call, Channel, receives
from app.clock import Clock
from app.errors import PayloadInvalid
from app.wire.payloads import Ack, Sync


class System(Channel):
    name = "system"
    grant = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @receives("ping", None)
    def ping(self, payload: Mapping[str, Any], call: Call) -> None:
        ts = payload.get("ts", self._clock.now())
        if isinstance(ts, dict | list):  # JSON may be read deeper than it can be written
            raise PayloadInvalid("ts must be a number or a string")
        call.answer("pong", {"ts": ts})

    @receives("pong", None)
    def pong(self, payload: Mapping[str, Any], call: Call) -> None:
        """Being read is all it is for."""

    @receives("ack", Ack)
    def ack(self, ack: Ack, call: Call) -> None:
        call.peer.acknowledge(ack.epoch, ack.seq)

    @receives("sync", Sync)
    def sync(self, sync: Sync, call: Call) -> None:
        call.peer.replay(sync.after)
