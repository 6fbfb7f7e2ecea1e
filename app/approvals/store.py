"""Asks as they are stored: `waiting` behind an older one, `open`, `answering` before an answer is sent, `closed`.

What devices are told of a change is kept in the transaction of the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import text

from app.approvals.ask import Kind
from app.db import Tx
from app.db.database import AnyRow

_INSERT = text(
    "INSERT INTO approvals (approval_id, kind, lane, turn_id, tool_id, ref, state, payload, timeout_s, asked_at, "
    "expires_at, blocks_until, reminded) VALUES (:id, :kind, :lane, :turn, :tool_id, :ref, :state, :payload, "
    ":timeout_s, :asked_at, :expires_at, :blocks_until, 0)"
)
_OPEN = text("UPDATE approvals SET state = 'open' WHERE approval_id = :id AND state = 'waiting'")
_REMIND = text("UPDATE approvals SET reminded = 1 WHERE approval_id = :id AND state = 'open'")
_ANSWERING = text(
    "UPDATE approvals SET state = 'answering', answer = :said, answered_by = :by "
    "WHERE approval_id = :id AND state = 'open'"
)
_REOPEN = text(
    "UPDATE approvals SET state = 'open', answer = NULL, answered_by = NULL "
    "WHERE approval_id = :id AND state = 'answering'"
)
_CLOSE = text(
    "UPDATE approvals SET state = 'closed', outcome = :outcome, blocks_until = :blocks_until, closed_at = :now "
    "WHERE approval_id = :id AND state <> 'closed'"
)
_UNSETTLED = text(
    "SELECT approval_id, kind, lane, turn_id, tool_id, ref, state, payload, timeout_s, asked_at, expires_at, "
    "blocks_until, reminded, answer, answered_by, outcome FROM approvals "
    "WHERE state <> 'closed' OR blocks_until > :now ORDER BY rowid"
)
_OUTCOME = text("SELECT outcome FROM approvals WHERE approval_id = :id AND kind = :kind AND state = 'closed'")
_KNOWN = text("SELECT 1 FROM approvals WHERE lane = :lane AND ref = :ref LIMIT 1")


@dataclass(frozen=True, slots=True)
class Stored:
    id: str
    kind: Kind
    lane: str
    turn_id: str | None
    tool_id: str | None
    ref: str | None
    state: str
    payload: Mapping[str, Any]  # of the request, without its state
    timeout_s: float
    asked_at: float
    expires_at: float
    blocks_until: float
    reminded: bool = False
    answer: str | None = None  # while it is being answered
    answered_by: str | None = None
    outcome: str | None = None


def insert(tx: Tx, ask: Stored) -> None:
    values = {
        "id": ask.id, "kind": ask.kind, "lane": ask.lane, "turn": ask.turn_id, "tool_id": ask.tool_id, "ref": ask.ref,
        "state": ask.state, "payload": orjson.dumps(ask.payload).decode(), "timeout_s": ask.timeout_s,
        "asked_at": ask.asked_at, "expires_at": ask.expires_at, "blocks_until": ask.blocks_until,
    }  # fmt: skip
    tx.execute(_INSERT, values)


def open_waiting(tx: Tx, id: str) -> bool:
    return tx.execute(_OPEN, {"id": id}).rowcount == 1


def reminded(tx: Tx, id: str) -> bool:
    """False if it is not open any more."""
    return tx.execute(_REMIND, {"id": id}).rowcount == 1


def answering(tx: Tx, id: str, said: str, by: str) -> bool:
    """False if it is not open: then nothing may be sent."""
    return tx.execute(_ANSWERING, {"id": id, "said": said, "by": by}).rowcount == 1


def reopen(tx: Tx, id: str) -> None:
    """The answer was surely not sent."""
    tx.execute(_REOPEN, {"id": id})


def close(tx: Tx, id: str, outcome: str, blocks_until: float, now: float) -> bool:
    """False if it was closed already, or was never stored."""
    values = {"id": id, "outcome": outcome, "blocks_until": blocks_until, "now": now}
    return tx.execute(_CLOSE, values).rowcount == 1


def unsettled(tx: Tx, now: float) -> Sequence[Stored]:
    """What has no outcome yet, and what stands in the way of its lane all the same, in the order of asking."""
    return [_stored(row) for row in tx.all(_UNSETTLED, {"now": now})]


def outcome_of(tx: Tx, id: str, kind: str) -> str | None:
    """None: there is no such ask, or it has none yet."""
    row = tx.one(_OUTCOME, {"id": id, "kind": kind})
    return None if row is None else str(row[0])


def is_known(tx: Tx, lane: str, ref: str) -> bool:
    return tx.one(_KNOWN, {"lane": lane, "ref": ref}) is not None


def _stored(row: AnyRow) -> Stored:
    stored = Stored(*row)
    return replace(stored, payload=orjson.loads(row[7]), reminded=bool(stored.reminded))
