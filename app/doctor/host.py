"""What is seen from this host, also while no relay runs: the data directory, its space, the clock, the database."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
from pathlib import Path

from alembic.script import ScriptDirectory

from app import container
from app.clock import Clock
from app.db.files import opened, sqlite_path
from app.db.migrate import alembic_config
from app.doctor.finding import Finding
from app.settings import ServerSettings

LOW_BYTES = 200 * 1024 * 1024
FULL_BYTES = 20 * 1024 * 1024
SKEW_S = 120.0  # a clock that is set by the network does not go back further
_RESTORE = "restore a backup: `talaria restore FILE`"
FIRST_YEAR = 1_735_689_600.0  # of this program: an earlier time was never set


def look(server: ServerSettings, clock: Clock) -> list[Finding]:
    """In the order in which one thing needs the other."""
    directory = _directory(server.data_dir)
    if directory.state == "fail":
        return [directory]
    database = sqlite_path(server.sqlite_url())
    return [directory, *_keys(server.data_dir), _space(server.data_dir), *_database(database, clock)]


def _directory(path: Path) -> Finding:
    name = "data directory"
    if not os.path.isdir(path):  # also where it lies behind what this uid may not enter
        return Finding(
            name, "fail", f"there is no directory {path.absolute()} that uid {os.getuid()} can see",
            "start the relay once (`talaria serve`), or set TALARIA_DATA_DIR to the one it uses",
        )  # fmt: skip
    owner, uid = path.stat().st_uid, os.getuid()
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return Finding(
            name, "fail", f"{path.absolute()} belongs to uid {owner}, and uid {uid} may not write there",
            f"`chown -R {uid} {_quoted(path)}`, or run the relay as uid {owner}",
        )  # fmt: skip
    if path.stat().st_mode & 0o022 and not path.stat().st_mode & 0o1000 and not container.is_inside():
        do = f"chmod 700 {_quoted(path)}"
        do = do if owner == uid else f"chown {uid} {_quoted(path)} && {do}"
        return Finding(name, "warn", f"other users may write to {path.absolute()}", f"`{do}`")
    return Finding(name, "ok", f"{path.absolute()}, of uid {owner}")


def _keys(path: Path) -> list[Finding]:
    """Files of the directory that others may read."""
    loose = [entry.name for entry in os.scandir(path) if _is_loose(entry)]
    if not loose:
        return []
    files = " ".join(_quoted(path / name) for name in sorted(loose))
    return [Finding("key files", "fail", f"other users can read {', '.join(sorted(loose))}", f"`chmod 600 {files}`")]


def _is_loose(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file() and bool(entry.stat().st_mode & 0o077) and not entry.name.endswith(".lock")
    except OSError:  # gone: SQLite makes and removes files while it works
        return False


def _quoted(path: Path) -> str:
    return shlex.quote(str(path.absolute()))


def _space(path: Path) -> Finding:
    free = shutil.disk_usage(path).free
    says = f"{free // (1 << 20):,} MiB are free"
    if free < FULL_BYTES:
        return Finding("space", "fail", f"{says}: nothing more can be kept", "free some space; no restart is needed")
    if free < LOW_BYTES:
        return Finding("space", "warn", f"{says}: when it is full nothing more can be kept", "free some space")
    return Finding("space", "ok", says)


def _database(path: Path, clock: Clock) -> list[Finding]:
    if not path.is_file():
        return [Finding("database", "fail", f"there is no {path}", f"start the relay once, or {_RESTORE}")]
    if not os.access(path, os.R_OK | os.W_OK):  # nothing is wrong with what is in it
        owner, uid = path.stat().st_uid, os.getuid()
        says = f"{path} belongs to uid {owner}, and uid {uid} may not read and write it"
        return [
            Finding("database", "fail", says, f"`chown -R {uid} {_quoted(path.parent)}`, or use uid {owner}")
        ]  # fmt: skip
    try:
        with opened(path) as db:
            revision = str(db.execute("SELECT version_num FROM alembic_version").fetchone()[0])
            latest = db.execute("SELECT MAX(at) FROM audit").fetchone()[0]
    except (sqlite3.Error, TypeError) as exc:
        return [Finding("database", "fail", f"{path} cannot be read: {exc}", _RESTORE)]
    return [Finding("database", "ok", str(path)), _schema(revision), _clock(latest, clock.now())]


def _schema(revision: str) -> Finding:
    scripts = ScriptDirectory.from_config(alembic_config())
    known = {script.revision for script in scripts.walk_revisions()}
    if revision not in known:
        return Finding(
            "schema", "fail", f"the database was written by a newer Talaria (schema {revision})",
            "install that version again, or restore a backup made before the upgrade: `talaria restore FILE`",
        )  # fmt: skip
    if revision != scripts.get_current_head():
        return Finding("schema", "warn", f"the database has schema {revision}", "start the relay: it migrates at start")
    return Finding("schema", "ok", f"schema {revision}, that of this version")


def _clock(latest: float | None, now: float) -> Finding:
    behind = (latest or 0.0) - now
    if now < FIRST_YEAR or behind > SKEW_S:
        why = "it was never set" if now < FIRST_YEAR else f"it is {behind:.0f} s behind what was stored last"
        return Finding("clock", "fail", f"the clock of this host is wrong: {why}", "`timedatectl set-ntp true`")
    return Finding("clock", "ok", "it has not gone back")
