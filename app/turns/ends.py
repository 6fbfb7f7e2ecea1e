"""How a turn's end is stored and kept: once, in one work, for every device that listens."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.approvals.service import Approvals
from app.clock import Clock, Sleep
from app.db import Database, Tx
from app.delivery.keep import keep
from app.delivery.peer import Peer
from app.errors import Overloaded, StorageFailed, StorageFull
from app.hermes.hermes import Hermes
from app.tasks import Supervisor
from app.turns import store
from app.turns.events import end_payload, end_type
from app.turns.pictures import Pictures
from app.turns.turn import Turn
from app.wire.envelope import encode

log = logging.getLogger("talaria.turns")

STORE_AGAIN_S = (1.0, 30.0)


class Devices(Protocol):
    """The hub, as far as turns need it."""

    def of_device(self, device_id: str) -> tuple[Peer, ...]: ...
    def ring(self, devices: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Rooms:
    """What a turn's course needs of the house. `sleep` is what tests replace to own the time."""

    db: Database
    clock: Clock
    tasks: Supervisor
    hub: Devices
    hermes: Hermes
    approvals: Approvals
    pictures: Pictures
    approval_s: float  # how long an upstream waits that does not say
    sleep: Sleep
    ended: Counter[str] = field(default_factory=Counter)  # by finish, since the start


async def keep_end(turn: Turn, rooms: Rooms) -> None:
    """It is tried until it succeeds: a full disk loses no end."""
    pause = STORE_AGAIN_S[0]
    payload = end_payload(turn.turn_id, turn.state, rooms.clock.now())
    while True:
        try:
            await rooms.db.write(lambda tx: end_turn(tx, rooms, payload))
            break
        except (StorageFull, StorageFailed, Overloaded) as exc:
            log.error("the end of a turn cannot be stored", extra={"turn": turn.turn_id, "code": exc.code})
        await rooms.sleep(pause)
        pause = min(pause * 2, STORE_AGAIN_S[1])
    turn.watchers.ended(encode("chat", end_type(payload["finish"]), payload, id=turn.turn_id))
    log.info("a turn ended", extra={"turn": turn.turn_id, "finish": payload["finish"], "events": turn.state.n})


def end_turn(tx: Tx, rooms: Rooms, payload: dict[str, Any]) -> bool:
    """Part of a work: store an end and keep it for every device that listens. False if it was stored already."""
    bell, now = rooms.hub.ring, rooms.clock.now()
    if not store.end(tx, payload["turn_id"], payload, now):
        return False
    type_ = end_type(payload["finish"])
    keep(tx, bell, None, id=payload["turn_id"], channel="chat", type=type_, kind="turn", payload=payload, now=now)
    tx.after_commit(lambda: rooms.ended.update([payload["finish"]]))
    return True
