"""Facts about this database itself."""

from __future__ import annotations

import secrets

from sqlalchemy import text

from app.db.database import Tx

_GET = text("SELECT value FROM meta WHERE key = 'relay_id'")
_SET = text("INSERT INTO meta (key, value) VALUES ('relay_id', :value)")


def relay_id(tx: Tx) -> str:
    """Made once; names this relay to its devices, whatever URL they reach it by."""
    row = tx.one(_GET)
    if row is not None:
        return bytes(row[0]).decode()
    made = secrets.token_hex(16)
    tx.execute(_SET, {"value": made.encode()})
    return made
