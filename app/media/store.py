"""SQL of files. A row's id is the hash of its token, so that a copy of the database opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from app.db import Tx

_COLUMNS = "media_id, path, name, mime, size, sensitive, sender, created_at, expires_at"
_ONE = text(f"SELECT {_COLUMNS} FROM media WHERE media_id = :id")  # noqa: S608
_INSERT = text(
    f"INSERT INTO media ({_COLUMNS}) "  # noqa: S608
    "VALUES (:media_id, :path, :name, :mime, :size, :sensitive, :sender, :created_at, :expires_at)"
)
_EXPIRED = text("SELECT media_id, path FROM media WHERE expires_at <= :now LIMIT :limit")
_TOTALS = text("SELECT COUNT(*), COALESCE(SUM(CASE WHEN path IS NULL THEN size ELSE 0 END), 0) FROM media")
_OLDEST = text("SELECT media_id, path, size FROM media WHERE path IS NULL OR :any ORDER BY created_at, rowid LIMIT 1")
_DELETE = text("DELETE FROM media WHERE media_id = :id")
_UPLOADED = text("SELECT media_id FROM media WHERE path IS NULL")


@dataclass(frozen=True, slots=True)
class Item:
    """`path` None: uploaded, the file is in the store. Times in Unix seconds, `size` in bytes."""

    media_id: str
    path: str | None
    name: str
    mime: str
    size: int
    sensitive: bool
    sender: str
    created_at: float
    expires_at: float


def one(tx: Tx, media_id: str) -> Item | None:
    row = tx.one(_ONE, {"id": media_id})
    if row is None:
        return None
    id, path, name, mime, size, sensitive, *rest = row
    return Item(id, path, name, mime, size, bool(sensitive), *rest)


def count(tx: Tx) -> int:
    row = tx.one(_TOTALS)
    return 0 if row is None else int(row[0])


def insert(tx: Tx, item: Item) -> None:
    tx.execute(_INSERT, {name: getattr(item, name) for name in Item.__slots__})


def expired(tx: Tx, now: float, limit: int) -> tuple[list[str], list[str]]:
    """Rows whose time has passed, and which of them have a file in the store."""
    rows = tx.all(_EXPIRED, {"now": now, "limit": limit})
    return [id for id, _ in rows], [id for id, path in rows if path is None]


def make_room(tx: Tx, size: int, quota: int, entries: int) -> list[str]:
    """Drop the oldest until a file of `size` bytes fits. The files of the store that are to be deleted."""
    gone: list[str] = []
    count, total = tx.one(_TOTALS) or (0, 0)
    while total + size > quota or count >= entries:
        oldest = tx.one(_OLDEST, {"any": total + size <= quota})
        if oldest is None:
            break
        id, path, freed = oldest
        tx.execute(_DELETE, {"id": id})
        count -= 1
        if path is None:
            total -= freed
            gone.append(id)
    return gone


def uploaded(tx: Tx) -> set[str]:
    return {row[0] for row in tx.all(_UPLOADED)}


def forget(tx: Tx, media_ids: Sequence[str]) -> None:
    for id in media_ids:
        tx.execute(_DELETE, {"id": id})
