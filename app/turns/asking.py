"""What a turn asks of its owner: handed to the approvals room, and what its later events say about the answer."""

from __future__ import annotations

from typing import Any

from app.approvals.ask import Ask
from app.turns.ends import Rooms
from app.turns.turn import Turn

CHOICES = ("once", "deny")


class Asking:
    """Also the Asker: takes the answers back to the upstream that asked."""

    def __init__(self, turn: Turn, rooms: Rooms) -> None:
        self._turn, self._approvals, self._hermes = turn, rooms.approvals, rooms.hermes
        self._approval_s = rooms.approval_s

    def adopt(self) -> None:
        """What this turn asked before a restart is answered through us."""
        self._approvals.adopt(self._turn.turn_id, self)
        self._turn.state.asking = True

    def read_signs(self) -> None:
        """In the order in which the events came."""
        signs, self._turn.state.signs = self._turn.state.signs, []
        for sign, body in signs:
            if sign == "answered":
                self._approvals.answered(self._turn.turn_id)
            elif sign == "went_on":
                self._approvals.passed(self._turn.turn_id, body.get("tool_id"))
            else:
                self._turn.state.asking = True
                self._approvals.asked(self._ask(body, is_question=sign == "clarify.request"), self)

    def _ask(self, body: dict[str, Any], *, is_question: bool) -> Ask:
        turn, lease = self._turn, self._turn.bound.lease
        given = body.get("choices")
        choices = tuple(choice for choice in given if isinstance(choice, str)) if isinstance(given, list) else ()
        timeout = body.get("timeout_s")
        return Ask(
            lane=f"{lease.route}:{lease.base}:{lease.run_id or lease.session_id}",
            kind="question" if is_question else "approval",
            summary=str(body.get("question" if is_question else "command") or ""),
            timeout_s=float(timeout) if isinstance(timeout, int | float) else self._approval_s,
            turn_id=turn.turn_id,
            session_id=turn.session_id,
            tool=_text(body.get("tool_name")),
            tool_id=_text(body.get("tool_id")),
            description=_text(body.get("description")),
            choices=choices or (() if is_question else CHOICES),
            ref=str(body.get("request_id")) if is_question else None,
        )

    # the way back

    async def waits_for(self, tool_id: str) -> bool:
        """The events of a conversation on the dashboard go to whoever opened it last. Who answered there first, unheard
        by us, may be asked the next thing already: our answer would reach that.
        """
        if self._turn.bound.lease.route != "dashboard":
            return True
        return not await self._hermes.has_result(self._turn.state.session_id, tool_id)

    async def decide(self, choice: str) -> int:
        bond = self._turn.bound
        return await bond.upstream.decide(bond.lease, choice)

    async def answer(self, ref: str, text: str) -> bool:
        bond = self._turn.bound
        return await bond.upstream.answer(bond.lease, ref, text)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
