"""What a turn asks of its owner: handed to the approvals room, and what its later events say about the answer."""

from __future__ import annotations

from typing import Any

from app.approvals.ask import Ask
from app.turns.ends import Rooms
from app.turns.turn import Turn

APPROVAL_S = 60.0  # Hermes' own default, where an upstream does not say how long it waits
CHOICES = ("once", "deny")


class Asking:
    """Also the Asker: takes the answers back to the upstream that asked."""

    def __init__(self, turn: Turn, rooms: Rooms) -> None:
        self._turn, self._approvals = turn, rooms.approvals

    def adopt(self) -> None:
        """What this turn asked before a restart is answered through us."""
        self._approvals.adopt(self._turn.turn_id, self)
        self._turn.state.asking = True

    def read_signs(self) -> None:
        """In the order in which the events came."""
        signs, self._turn.state.signs = self._turn.state.signs, []
        for sign, body in signs:
            if sign == "asks":
                self._turn.state.asking = True
                self._approvals.asked(self._ask(body), self)
            elif sign == "answered":
                self._approvals.answered(self._turn.turn_id)
            else:
                self._approvals.passed(self._turn.turn_id, body.get("tool_id"))

    def _ask(self, body: dict[str, Any]) -> Ask:
        turn, lease = self._turn, self._turn.bound.lease
        is_question = "request_id" in body
        given = body.get("choices")
        choices = tuple(choice for choice in given if isinstance(choice, str)) if isinstance(given, list) else ()
        timeout = body.get("timeout_s")
        return Ask(
            lane=f"{lease.route}:{lease.base}:{lease.run_id or lease.session_id}",
            kind="question" if is_question else "approval",
            summary=str(body.get("question" if is_question else "command") or ""),
            timeout_s=float(timeout) if isinstance(timeout, int | float) else APPROVAL_S,
            turn_id=turn.turn_id,
            session_id=turn.session_id,
            tool=body.get("tool_name"),
            tool_id=body.get("tool_id"),
            description=description if isinstance(description := body.get("description"), str) else None,
            choices=choices or (() if is_question else CHOICES),
            ref=str(body["request_id"]) if is_question else None,
        )

    # the way back

    async def decide(self, choice: str) -> int:
        bond = self._turn.bound
        return await bond.upstream.decide(bond.lease, choice)

    async def answer(self, ref: str, text: str) -> bool:
        bond = self._turn.bound
        return await bond.upstream.answer(bond.lease, ref, text)
