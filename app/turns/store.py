"""Turns as they are stored: `accepted`, `submitting` before the first upstream byte, `running`, then `ended`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import text

from app.db import Tx
from app.hermes.lease import Lease

_INSERT = text(
    "INSERT INTO turns (turn_id, device_id, session_id, state, message, created_at, updated_at) "
    "VALUES (:turn, :device, :session, 'accepted', :message, :now, :now)"
)
_AHEAD = text(
    "SELECT count(*) FROM turns WHERE session_id = :session AND state IN ('accepted', 'submitting', 'running')"
)
_SUBMITTING = text(
    "UPDATE turns SET state = 'submitting', session_id = :session, lease = :lease, updated_at = :now "
    "WHERE turn_id = :turn AND state = 'accepted'"
)
_RUNNING = text(
    "UPDATE turns SET state = 'running', lease = :lease, updated_at = :now "
    "WHERE turn_id = :turn AND state IN ('submitting', 'running')"
)
_CHECKPOINT = text(
    "UPDATE turns SET progress = :progress, updated_at = :now "
    "WHERE turn_id = :turn AND state IN ('submitting', 'running')"
)
_END = text(
    "UPDATE turns SET state = 'ended', session_id = :session, progress = :progress, finish = :finish, error = :error, "
    "updated_at = :now, ended_at = :now WHERE turn_id = :turn AND state <> 'ended'"
)
_ROW = "SELECT turn_id, device_id, session_id, state, message, progress, finish, created_at, lease FROM turns "
_ONE = text(_ROW + "WHERE turn_id = :turn")
_OPEN = text(_ROW + "WHERE state IN ('accepted', 'submitting', 'running') ORDER BY created_at, rowid")
_BY_STATE = text(
    "SELECT state, COUNT(*) FROM turns WHERE state IN ('accepted', 'submitting', 'running') GROUP BY state"
)
_MOVED = text("UPDATE turns SET session_id = :to WHERE session_id = :from AND state = 'accepted'")


@dataclass(frozen=True, slots=True)
class StoredTurn:
    turn_id: str
    device_id: str
    session_id: str | None
    state: str
    message: Mapping[str, Any]  # the chat.send payload, and the frame's id
    progress: Mapping[str, Any] | None  # the last checkpoint; of an ended turn the payload of its end
    finish: str | None
    created_at: float
    lease: Lease | None  # from `submitting` on


def insert(
    tx: Tx, turn_id: str, device_id: str, session_id: str | None, message: Mapping[str, Any], now: float
) -> None:
    values = {"turn": turn_id, "device": device_id, "session": session_id, "message": _dumps(message), "now": now}
    tx.execute(_INSERT, values)


def ahead(tx: Tx, session_id: str) -> int:
    """Turns of this session that are not ended."""
    row = tx.one(_AHEAD, {"session": session_id})
    return 0 if row is None else int(row[0])


def submitting(tx: Tx, turn_id: str, lease: Lease, now: float) -> bool:
    """False if the turn is not `accepted` any more: then nothing may be sent."""
    values = {"turn": turn_id, "session": lease.session_id, "lease": _dumps(lease.as_json()), "now": now}
    return tx.execute(_SUBMITTING, values).rowcount == 1


def running(tx: Tx, turn_id: str, lease: Lease, now: float) -> None:
    tx.execute(_RUNNING, {"turn": turn_id, "lease": _dumps(lease.as_json()), "now": now})


def begun(tx: Tx, turn_id: str, device_id: str, message: Mapping[str, Any], lease: Lease, now: float) -> None:
    """A turn that runs already."""
    insert(tx, turn_id, device_id, lease.session_id, message, now)
    submitting(tx, turn_id, lease, now)
    running(tx, turn_id, lease, now)


def checkpoint(tx: Tx, turn_id: str, progress: Mapping[str, Any], now: float) -> None:
    tx.execute(_CHECKPOINT, {"turn": turn_id, "progress": _dumps(progress), "now": now})


def end(tx: Tx, turn_id: str, payload: Mapping[str, Any], now: float) -> bool:
    """`payload` is that of the kept frame. False if it had ended already."""
    error = payload.get("error")
    values = {
        "turn": turn_id, "session": payload.get("session_id"), "progress": _dumps(payload),
        "finish": payload["finish"], "error": error and _dumps(error), "now": now,
    }  # fmt: skip
    return tx.execute(_END, values).rowcount == 1


def one(tx: Tx, turn_id: str) -> StoredTurn | None:
    row = tx.one(_ONE, {"turn": turn_id})
    return None if row is None else _stored(row)


def messages(tx: Tx, turn_ids: Sequence[str]) -> list[Any]:
    """What was sent in these turns, as far as they are still stored."""
    found = (one(tx, turn_id) for turn_id in turn_ids)
    return [turn.message["message"] for turn in found if turn is not None]


def unended(tx: Tx) -> Sequence[StoredTurn]:
    """In the order in which they were accepted."""
    return [_stored(row) for row in tx.all(_OPEN)]


def open_by_state(tx: Tx) -> dict[str, int]:
    return {"accepted": 0, "submitting": 0, "running": 0} | dict(tx.all(_BY_STATE))


def move(tx: Tx, old: str, new: str) -> None:
    """What waits for a session follows it when its conversation moves."""
    tx.execute(_MOVED, {"from": old, "to": new})


def _stored(row: Any) -> StoredTurn:
    turn_id, device_id, session_id, state, message, progress, finish, created_at, lease = row
    return StoredTurn(
        turn_id, device_id, session_id, state, orjson.loads(message),
        None if progress is None else orjson.loads(progress), finish, created_at,
        None if lease is None else Lease.from_json(orjson.loads(lease)),
    )  # fmt: skip


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
