"""What devices answer to approvals and questions. The answers wait for whoever asked."""

from __future__ import annotations

from app.approvals.service import Approvals
from app.channels.base import Call, Channel, receives
from app.channels.later import Later
from app.tasks import Supervisor
from app.wire.asks import ApprovalRespond, QuestionAnswer


class Asks(Channel):
    name = "chat"
    grant = "chat"

    def __init__(self, approvals: Approvals, tasks: Supervisor) -> None:
        self._approvals = approvals
        self._later = Later(tasks)

    @receives("approval.respond", ApprovalRespond)
    def respond(self, payload: ApprovalRespond, call: Call) -> None:
        self._later(self._respond(payload, call), call)

    @receives("question.answer", QuestionAnswer)
    def answer(self, payload: QuestionAnswer, call: Call) -> None:
        self._later(self._answer(payload, call), call)

    async def _respond(self, said: ApprovalRespond, call: Call) -> None:
        device_id, key = call.peer.device_id, call.frame.id
        answer = await self._approvals.respond(device_id, said.approval_id, said.choice, key)
        call.answer("approval.resolved", answer)

    async def _answer(self, said: QuestionAnswer, call: Call) -> None:
        device_id, key = call.peer.device_id, call.frame.id
        answer = await self._approvals.answer(device_id, said.question_id, said.answer, key)
        call.answer("question.closed", answer)
