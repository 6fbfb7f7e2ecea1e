"""A mailbox's row as it stands in the database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from app.db import Database, Tx

_BOX = text("SELECT * FROM mailboxes WHERE device_id = :device")


async def mailbox_row(db: Database, device_id: str) -> dict[str, Any]:
    def work(tx: Tx) -> dict[str, Any]:
        found = tx.execute(_BOX, {"device": device_id})
        return dict(zip((column[0] for column in found.description), found.fetchone(), strict=True))

    return await db.read(work)
