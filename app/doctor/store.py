"""What the checks ask of the database."""

from __future__ import annotations

from sqlalchemy import text

from app.db import Tx

_LIVE = text(
    "SELECT device_id, name FROM devices d WHERE EXISTS "
    "(SELECT 1 FROM sessions s WHERE s.device_id = d.device_id AND s.revoked_at IS NULL)"
)
_PIN = text("SELECT value FROM meta WHERE key = :key")
_STORE_PIN = text("INSERT INTO meta (key, value) VALUES (:key, :value)")


def devices(tx: Tx) -> dict[str, str]:
    """Id → name of those that are paired."""
    return {str(device_id): str(name) for device_id, name in tx.all(_LIVE)}


def pinned(tx: Tx, host: str, key: str) -> str | None:
    """The key that was seen first at that host. None: this is the first, and it is stored."""
    name = f"certificate key of {host}"
    row = tx.one(_PIN, {"key": name})
    if row is None:
        tx.execute(_STORE_PIN, {"key": name, "value": key.encode()})
        return None
    return bytes(row[0]).decode()
