"""Puts a backup in the place of what is there, as one step that survives a kill.

Everything is prepared beside its place, then a list of what is to be moved is stored, then it is moved. A relay that
starts and finds the list finishes it first. What was there stays beside it as `talaria.db.before-restore`.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from app.backup import store
from app.backup.archive import DATABASE, KEYS, Manifest
from app.backup.errors import BackupFailed
from app.backup.store import Session
from app.db import files
from app.sessions.keys import FILE as SESSION_KEYS
from app.sessions.keys import merged
from app.sessions.operator import LinkToken, OperatorToken

# [[from, to], …]: paths that are moved in this order; within the data directory, which a container has under another
# name than its host, they are relative to it.
LIST = "restore.json"
DRAFT = f".{LIST}"
READY = ".restoring"
KEPT = ".before-restore"
# Where the backup is of this very relay these stay as they are: they may have been exchanged because one was seen.
OURS = (OperatorToken.FILE, LinkToken.FILE)


@dataclass(frozen=True, slots=True)
class Restored:
    revived: Sequence[Session]
    kept: Path | None  # the database that was in place


def put_back(unpacked: Path, manifest: Manifest, data_dir: Path, database: Path, now: float) -> Restored:
    """No relay may run on this directory. Raises BackupFailed."""
    finish(data_dir, database)
    staged = unpacked / DATABASE
    try:
        known = store.before(database, unpacked / "before.db", now)
        with files.opened(staged) as db:
            is_ours = known is not None and store.relay_id(db) == known.relay_id
        revived = store.settle(staged, known if is_ours else None, manifest.made_at, now)
        kept = _keep(database)
        moves = [_stage(_keys(unpacked, name, data_dir, is_ours=is_ours), data_dir / name) for name in KEYS]
        moves.append(_stage(staged, database))
        _store_list(data_dir, [move for move in moves if move is not None])
    except (OSError, sqlite3.Error) as exc:
        raise BackupFailed(f"the backup could not be put back, and nothing was changed: {exc}") from exc
    finish(data_dir, database)
    return Restored(revived, kept)


def finish(data_dir: Path, database: Path) -> None:
    """Move what a restore has prepared, or drop it where that was not all. Whoever calls has the data directory for
    itself. Raises BackupFailed.
    """
    path = data_dir / LIST
    try:
        if path.is_file():
            _move([(data_dir / source, data_dir / target) for source, target in orjson.loads(path.read_bytes())])
            path.unlink()
            _sync(data_dir)
        for left in (data_dir / DRAFT, *(_staged(data_dir / name) for name in KEYS), _staged(database)):
            left.unlink(missing_ok=True)
    except OSError as exc:
        raise BackupFailed(f"a restore is half done, and the next start goes on with it: {exc}") from exc


def _move(moves: Sequence[tuple[Path, Path]]) -> None:
    for source, target in moves:
        if not source.exists():
            continue  # moved already
        for ending in files.BESIDE:
            target.with_name(target.name + ending).unlink(missing_ok=True)
        os.replace(source, target)
        _sync(target.parent)


def _keys(unpacked: Path, name: str, data_dir: Path, *, is_ours: bool) -> Path | None:
    """The file that is to lie there: the backup's, or None for the one that is there."""
    backed_up, there = unpacked / name, data_dir / name
    if is_ours and there.is_file():
        if name in OURS:
            return None
        if name == SESSION_KEYS and backed_up.is_file():
            backed_up.write_bytes(merged(there.read_bytes(), backed_up.read_bytes()))
    return backed_up if backed_up.is_file() else None


def _stage(source: Path | None, target: Path) -> tuple[Path, Path] | None:
    if source is None:
        return None
    staged = _staged(target)
    shutil.move(source, staged)
    with staged.open("rb+") as file:
        os.fsync(file.fileno())
    _own(staged, target)
    return staged, target


def _staged(target: Path) -> Path:
    return target.with_name(target.name + READY)


def _keep(database: Path) -> Path | None:
    """A second name for it. What SQLite keeps beside it goes into it first."""
    if not database.is_file():
        return None
    with suppress(sqlite3.Error), files.opened(database) as db:  # one that cannot be read is kept as it is
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    kept = database.with_name(database.name + KEPT)
    kept.unlink(missing_ok=True)
    try:
        os.link(database, kept)
    except OSError:  # a file system without hard links
        shutil.copyfile(database, kept)
        kept.chmod(0o600)
    _own(kept, database)
    return kept


def _store_list(data_dir: Path, moves: Sequence[tuple[Path, Path]]) -> None:
    draft = data_dir / DRAFT
    with open(draft, "wb") as file:
        file.write(orjson.dumps([[_within(data_dir, path) for path in move] for move in moves]))
        file.flush()
        os.fsync(file.fileno())
    _own(draft, data_dir / OperatorToken.FILE)
    _sync(data_dir)
    draft.rename(data_dir / LIST)
    _sync(data_dir)


def _within(data_dir: Path, path: Path) -> str:
    whole, base = path.absolute(), data_dir.absolute()
    return str(whole.relative_to(base) if whole.is_relative_to(base) else whole)


def _own(path: Path, place: Path) -> None:
    """Root may do it for the relay: the owner of what lies in its place, else of the directory.

    In the image the directory is root's, and what lies in it the relay's.
    """
    if os.geteuid() == 0:
        owner = (place if place.exists() else place.parent).stat()
        os.chown(path, owner.st_uid, owner.st_gid)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
