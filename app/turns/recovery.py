"""What a start of the relay makes of the turns that had not ended when it stopped."""

from __future__ import annotations

import logging

from app.db import Tx
from app.hermes.lease import Lease
from app.turns import store
from app.turns.ends import Rooms, end_turn
from app.turns.errors import TurnExpired, TurnUncertain
from app.turns.events import end_payload
from app.turns.turn import Bond, Moved, Turn

log = logging.getLogger("talaria.turns")

SEND_WITHIN_S = 600.0  # what was accepted earlier than this before a start is not sent any more


def recovered(tx: Tx, rooms: Rooms, moved: Moved) -> list[Turn]:
    """Those that go on, in the order in which they were accepted. Part of a work, in which the others get their end.

    What was accepted is sent now. What was submitted, or may have been, is only followed to its end.
    """
    now, going_on = rooms.clock.now(), []
    for stored in store.unended(tx):
        turn = Turn(
            stored.turn_id, stored.device_id, stored.session_id, dict(stored.message),
            created_at=stored.created_at, clock=rooms.clock, moved=moved,
        )  # fmt: skip
        if turn.by_agent:
            turn.state.restore(stored.progress or {})
            turn.finish("uncertain", TurnUncertain())
            end_turn(tx, rooms, end_payload(turn.turn_id, turn.state, now))
        elif stored.state == "accepted" and now - stored.created_at < SEND_WITHIN_S:
            going_on.append(turn)
        elif stored.state != "accepted" and stored.lease is not None:
            _restore(turn, stored, stored.lease, rooms)
            going_on.append(turn)
        else:
            turn.finish("failed", TurnExpired()) if stored.state == "accepted" else turn.finish(
                "uncertain", TurnUncertain()
            )
            end_turn(tx, rooms, end_payload(turn.turn_id, turn.state, now))
        log.info("a turn was found", extra={"turn": turn.turn_id, "was": stored.state, "finish": turn.state.finish})
    return going_on


def _restore(turn: Turn, stored: store.StoredTurn, lease: Lease, rooms: Rooms) -> None:
    turn.bond = Bond(rooms.hermes.upstream(lease.route), lease)
    turn.submitted, turn.answered = True, stored.state == "running"
    turn.state.restore(stored.progress or {})
    if session_id := (stored.progress or {}).get("session_id"):
        turn.bind(session_id)
