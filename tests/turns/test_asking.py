"""What an upstream's event becomes when it is handed to the approvals room."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.approvals.ask import Ask
from app.clock import ManualClock
from app.turns.asking import Asking
from app.turns.turn import Bond, Turn
from tests.hermes_client.dashboard_server import lease


def asked(name: str, body: dict[str, Any]) -> Ask:
    asks: list[Ask] = []
    turn = Turn("t1", "phone", "s1", {"message": "hi"}, created_at=0.0, clock=ManualClock(), moved=lambda *_: None)
    turn.bond = Bond(None, lease("s1"))  # type: ignore[arg-type]
    approvals = SimpleNamespace(asked=lambda ask, _: asks.append(ask))
    turn.take([(name, body)])
    Asking(turn, SimpleNamespace(approvals=approvals, hermes=None, approval_s=60.0)).read_signs()  # type: ignore[arg-type]
    return asks[0]


def test_an_approval_with_an_id_is_no_question() -> None:
    """Hermes knows no ids of approvals, but a later one may."""
    ask = asked("approval.request", {"command": "rm one", "request_id": "r1", "choices": ["once", "deny"]})
    assert (ask.kind, ask.summary, ask.choices, ask.ref) == ("approval", "rm one", ("once", "deny"), None)


@pytest.mark.parametrize("value", [None, 7, [7], {"a": 1}])
def test_what_makes_no_sense_is_left_out(value: Any) -> None:
    fields = ("command", "tool_name", "tool_id", "description", "choices", "timeout_s")
    ask = asked("approval.request", dict.fromkeys(fields, value))
    assert (ask.tool, ask.tool_id, ask.description, ask.choices) == (None, None, None, ("once", "deny"))
    assert ask.timeout_s == (7 if value == 7 else 60.0)
    question = asked("clarify.request", dict.fromkeys(("request_id", "question", "choices"), value))
    assert (question.kind, question.choices, question.ref) == ("question", (), str(value))
