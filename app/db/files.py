"""The database as a file: for copies of it, and for one that no relay has open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.exc import DBAPIError

from app.db.migrate import migrate
from app.errors import Misconfigured

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database; with another one they spoil it


def sqlite_path(url: str) -> Path:
    """Raises Misconfigured for another database system, or one in memory."""
    found = make_url(url)
    if found.get_backend_name() != "sqlite" or not found.database:
        raise Misconfigured("TALARIA_DATABASE_URL: it must be a file of SQLite, such as sqlite:////srv/talaria.db")
    return Path(found.database)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """One that is there. Statements commit themselves; raises sqlite3.Error."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=30)) as connection:
        connection.isolation_level = None
        yield connection


def copy(path: Path, into: Path) -> None:
    """As it is at one moment, while others write to it. `into` must not exist. Raises sqlite3.Error."""
    with opened(path) as connection:
        connection.execute("VACUUM INTO ?", (str(into),))


def check(path: Path) -> None:
    """Reads all of it. Raises sqlite3.Error if that is not a sound database."""
    with opened(path) as connection:
        faults = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
        if faults != ["ok"]:
            raise sqlite3.DatabaseError(faults[0] if faults else "it is empty")


def migrate_file(path: Path) -> None:
    """To this program's schema. Raises Misconfigured if it was written by a newer one, sqlite3.Error if it is none."""
    engine = create_engine(f"sqlite:///{path.absolute()}", poolclass=NullPool, hide_parameters=True)
    try:
        migrate(engine)
    except DBAPIError as exc:
        raise sqlite3.DatabaseError(str(exc.orig)) from exc
    finally:
        engine.dispose()
