"""The link itself: liveness, acknowledgements, replays, and how its device is woken while there is no link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.channels.base import Call, Channel, receives
from app.clock import Clock
from app.errors import PayloadInvalid, RelayError
from app.push.service import Push
from app.sessions.renewals import Renewals
from app.tasks import Supervisor
from app.wire.payloads import Ack, Presence, PushRegister, PushUnregister, SessionRenew, Sync


class System(Channel):
    name = "system"
    grant = None

    def __init__(self, clock: Clock, push: Push, tasks: Supervisor, renewals: Renewals) -> None:
        self._clock, self._push, self._tasks, self._renewals = clock, push, tasks, renewals

    @receives("ping", None)
    def ping(self, payload: Mapping[str, Any], call: Call) -> None:
        ts = payload.get("ts", self._clock.now())
        if isinstance(ts, dict | list):  # JSON may be read deeper than it can be written
            raise PayloadInvalid("ts must be a number or a string")
        call.answer("pong", {"ts": ts})

    @receives("pong", None)
    def pong(self, payload: Mapping[str, Any], call: Call) -> None:
        call.peer.pong()

    @receives("ack", Ack)
    def ack(self, ack: Ack, call: Call) -> None:
        call.peer.acknowledge(ack.epoch, ack.seq)

    @receives("sync", Sync)
    def sync(self, sync: Sync, call: Call) -> None:
        call.peer.replay(sync.after)

    @receives("session.renew", SessionRenew)
    async def renew(self, asked: SessionRenew, call: Call) -> None:
        """A link renews its own session. Its grants are those of the renewed one from the answer on."""
        made = await self._renewals.renew(
            asked.refresh_token, None, device_id=call.peer.device_id, session_id=call.peer.session_id
        )  # fmt: skip
        call.answer("session.renewed", made.said())

    # waking

    @receives("presence", Presence)
    async def presence(self, payload: Presence, call: Call) -> None:
        await self._push.presence.say(call.peer, foreground=payload.foreground)

    @receives("push.register", PushRegister)
    async def register(self, payload: PushRegister, call: Call) -> None:
        keys = payload.keys.model_dump() if payload.keys else {}
        made = await self._push.register(call.peer.device_id, payload.provider, payload.endpoint, keys)
        call.answer("push.registered", made)

    @receives("push.unregister", PushUnregister)
    async def unregister(self, payload: PushUnregister, call: Call) -> None:
        removed = await self._push.unregister(call.peer.device_id, payload.target_id)
        call.answer("push.unregistered", {"removed": removed})

    @receives("push.test", None)
    def test(self, payload: Mapping[str, Any], call: Call) -> None:
        self._tasks.start(self._test(call), "push test")

    async def _test(self, call: Call) -> None:
        """Answered later: it waits for the providers."""
        try:
            call.answer("push.tested", {"results": await self._push.test(call.peer.device_id)})
        except RelayError as exc:
            call.refuse(exc)
