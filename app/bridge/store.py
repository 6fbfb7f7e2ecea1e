"""SQL of what phones last said of themselves, and of what they were asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson
from sqlalchemy import text

from app.db import Tx

# A device that was revoked cannot be asked; its row goes with the next start.
_PAIRED = (
    "EXISTS (SELECT 1 FROM sessions s WHERE s.device_id = d.device_id AND s.revoked_at IS NULL "
    "AND (s.expires_at IS NULL OR s.expires_at > :now))"
)
_ALL = text(
    "SELECT b.device_id, d.name, d.about, b.session_id, b.status, b.at, b.chosen "  # noqa: S608
    f"FROM bridge_devices b JOIN devices d USING (device_id) WHERE {_PAIRED} ORDER BY b.at"
)
_ABOUT = text("SELECT name, about FROM devices WHERE device_id = :device")
_LIVING = text(f"SELECT d.device_id, d.name FROM devices d WHERE {_PAIRED}")  # noqa: S608
_PUT = text(
    "INSERT INTO bridge_devices (device_id, session_id, status, at, chosen) "
    "SELECT :device, :session, :status, :at, 0 WHERE EXISTS (SELECT 1 FROM devices WHERE device_id = :device) "
    "ON CONFLICT (device_id) DO UPDATE SET session_id = excluded.session_id, status = excluded.status, "
    "at = excluded.at"
)
_CHOOSE = text("UPDATE bridge_devices SET chosen = (device_id = :device)")
_ADD = text("INSERT INTO bridge_activity (entry) VALUES (:entry)")
_TRIM = text(
    "DELETE FROM bridge_activity WHERE id <= (SELECT id FROM bridge_activity ORDER BY id DESC LIMIT 1 OFFSET :most)"
)
_ENTRIES = text("SELECT entry FROM bridge_activity ORDER BY id DESC LIMIT :most")


@dataclass(frozen=True, slots=True)
class Said:
    """What a device said of itself, in JSON, when (Unix seconds), and on which session."""

    session_id: str
    status: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Row:
    device_id: str
    name: str
    about: Mapping[str, str]
    said: Said
    chosen: bool


def rows(tx: Tx, now: float) -> list[Row]:
    """Of the devices that have a live session, who spoke last is last."""
    found = tx.all(_ALL, {"now": now})
    return [
        Row(id, name, orjson.loads(about), Said(session, bytes(status), at), bool(chosen))
        for id, name, about, session, status, at, chosen in found
    ]


def about(tx: Tx, device_id: str) -> tuple[str, Mapping[str, str]]:
    """Name, and what the device said of itself when it was paired."""
    row = tx.one(_ABOUT, {"device": device_id})
    return ("", {}) if row is None else (row[0], orjson.loads(row[1]))


def living(tx: Tx, now: float) -> dict[str, str]:
    """The devices that have a live session, and their names."""
    return {row[0]: row[1] for row in tx.all(_LIVING, {"now": now})}


def put(tx: Tx, device_id: str, said: Said) -> None:
    """Nothing for a device that is gone."""
    values = {"device": device_id, "session": said.session_id, "status": said.status, "at": said.at}
    tx.execute(_PUT, values)


def choose(tx: Tx, device_id: str) -> None:
    tx.execute(_CHOOSE, {"device": device_id})


def add(tx: Tx, entries: Iterable[bytes], most: int) -> None:
    """The newest `most` stay."""
    tx.execute(_ADD, [{"entry": entry} for entry in entries])
    tx.execute(_TRIM, {"most": most})


def entries(tx: Tx, most: int) -> list[bytes]:
    """Oldest first."""
    return [bytes(row[0]) for row in reversed(tx.all(_ENTRIES, {"most": most}))]
