"""Who did what, written in the transaction of the deed. Details never hold a secret."""

from __future__ import annotations

from typing import Any

import orjson
from sqlalchemy import text

from app.db import Tx

_ADD = text("INSERT INTO audit (at, actor, action, subject, detail) VALUES (:at, :actor, :action, :subject, :detail)")


def record(tx: Tx, *, at: float, actor: str, action: str, subject: str, **detail: Any) -> None:
    """`actor` is `operator`, `relay` or a session's prefix; `action` such as `session.revoked`."""
    tx.execute(
        _ADD, {"at": at, "actor": actor, "action": action, "subject": subject, "detail": orjson.dumps(detail).decode()}
    )
