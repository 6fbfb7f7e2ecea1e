"""SQL of what the apps of phones posted there. A notification that is posted again gets a new row, above all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from app.db import Tx
from app.wire.notifications import NotificationPosted

STEP = 2_000  # rows taken in one transaction: a long one would hold up every writer
LAST = 2**63 - 1

# The same again changes nothing: phones repeat all that they show whenever they connect. No device: it was deleted.
_SAME = (
    "SELECT 1 FROM notifications WHERE device_id = :device AND key = :key AND removed_at IS NULL "
    "AND package_name = :package_name AND posted_at IS :posted_at "
    "AND title IS :title AND text IS :text AND sub_text IS :sub_text"
)
_POST = text(
    "INSERT OR REPLACE INTO notifications "  # noqa: S608
    "(device_id, key, package_name, title, text, sub_text, posted_at, received_at) "
    "SELECT device_id, :key, :package_name, :title, :text, :sub_text, :posted_at, :now FROM devices "
    f"WHERE device_id = :device AND NOT EXISTS ({_SAME})"
)
_REMOVE = text(
    "UPDATE notifications SET removed_at = :now WHERE device_id = :device AND key = :key AND removed_at IS NULL"
)
_TRIM = text(
    "DELETE FROM notifications WHERE device_id = :device AND row <= (SELECT row FROM notifications "
    "WHERE device_id = :device ORDER BY row DESC LIMIT 1 OFFSET :count)"
)
_COLUMNS = "row, device_id, key, package_name, title, text, sub_text, posted_at, received_at, removed_at"
_NEWEST = text(
    f"SELECT {_COLUMNS} FROM notifications WHERE row < :before AND received_at >= :since "  # noqa: S608
    "AND (:device IS NULL OR device_id = :device) ORDER BY row DESC LIMIT :limit"
)
_OLD = text(
    "DELETE FROM notifications WHERE row IN "
    "(SELECT row FROM notifications WHERE received_at < :before ORDER BY received_at LIMIT :limit)"
)
_PACKAGES = text("SELECT DISTINCT package_name FROM notifications")
_FORGET = text("DELETE FROM notifications WHERE package_name = :package")


@dataclass(frozen=True, slots=True)
class Notification:
    """`posted_at` in milliseconds by the phone's clock; the other times in Unix seconds by ours."""

    row: int
    device_id: str
    key: str
    package_name: str
    title: str | None
    text: str | None
    sub_text: str | None
    posted_at: int | None
    received_at: float
    removed_at: float | None


def post(tx: Tx, device_id: str, said: NotificationPosted, now: float) -> None:
    tx.execute(_POST, {"device": device_id, "now": now, **said.model_dump()})


def remove(tx: Tx, device_id: str, key: str, now: float) -> None:
    tx.execute(_REMOVE, {"device": device_id, "key": key, "now": now})


def trim(tx: Tx, device_id: str, count: int) -> None:
    """Keep the newest `count` of a device."""
    tx.execute(_TRIM, {"device": device_id, "count": count})


def newest(
    tx: Tx, limit: int, *, since: float, before: int | None = None, device_id: str | None = None
) -> Sequence[Notification]:
    """Below the row `before`, received at `since` or later."""
    asked = {"limit": limit, "since": since, "before": LAST if before is None else before, "device": device_id}
    return [Notification(*row) for row in tx.all(_NEWEST, asked)]


def forget_old(tx: Tx, before: float) -> bool:
    """True if there may be more."""
    return tx.execute(_OLD, {"before": before, "limit": STEP}).rowcount == STEP


def packages(tx: Tx) -> list[str]:
    return [name for (name,) in tx.all(_PACKAGES)]


def forget_package(tx: Tx, package: str) -> None:
    tx.execute(_FORGET, {"package": package})
