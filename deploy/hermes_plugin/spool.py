"""What the relay has not confirmed yet, on disk: a message survives the relay's absence and the death of the gateway.

One SQLite file in the Hermes home. Durable frames are numbered 1, 2, 3 … without gaps and leave in that order; a row
goes when the relay has answered it. `synchronous=FULL`: what `append` returned for is there after a power cut.

Bounds: MAX_FRAMES frames and MAX_BYTES of text wait at most. Above that `append` refuses what a person would read, and
the caller is told; nothing that waits is dropped. Frames that close something (`done`, `ask.closed`, `interrupted`)
always fit: what opened them is bounded.

Several processes may append (`hermes send` while the gateway runs); only the gateway reads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FRAMES = 10_000
MAX_BYTES = 64 * 1024 * 1024
MAX_FILES_BYTES = 256 * 1024 * 1024  # copies of files that wait to be uploaded
REMEMBERED = 2_000  # inbound ids; the relay asks again only for the last few
CLOSING = ("done", "ask.closed", "interrupted")

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (n INTEGER PRIMARY KEY, size INTEGER NOT NULL, file TEXT, file_size INTEGER NOT NULL,
                                   frame TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS taken (inbound_id TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS streams (local_id TEXT PRIMARY KEY, chat_id TEXT NOT NULL, thread_id TEXT);
CREATE TABLE IF NOT EXISTS asks (ask_id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS refusals (n INTEGER PRIMARY KEY, message TEXT NOT NULL);
"""

logger = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")


class SpoolFull(Exception):
    """The relay has been away for too long, or the disk is full; the message was not kept."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A frame that waits; `file` is the copy of what has to be uploaded before it can leave."""

    n: int
    frame: dict[str, Any]
    file: Path | None


class Spool:
    """Its verbs block and belong to one thread; `do` calls them there, in the order in which it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="talaria-spool")
        self._db: sqlite3.Connection | None = None

    async def do(self, verb: Callable[Concatenate[Spool, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: verb(self, *args, **kwargs))

    def open(self) -> None:
        """A file that is no database any more is put aside: the gateway must start without it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / "spool.db"
        try:
            self._connect(path)
        except sqlite3.DatabaseError as exc:
            if isinstance(exc, sqlite3.OperationalError):
                raise
            aside = path.with_suffix(f".broken-{int(time.time())}")
            logger.error("talaria: %s is damaged; it was renamed to %s and a new one begun", path, aside.name)
            self.close()
            path.rename(aside)
            for rest in ("spool.db-wal", "spool.db-shm"):
                (self.folder / rest).unlink(missing_ok=True)
            self._connect(path)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    async def shut(self) -> None:
        await self.do(Spool.close)
        self._thread.shutdown(wait=False)

    # what leaves

    def append(self, frame: dict[str, Any], file: Path | None = None) -> int:
        """Keep the frame and number it. Closes the stream of its `local_id` in the same step. Raises SpoolFull."""
        try:
            with self._writing() as db:
                return self._append(db, frame, file)
        except sqlite3.OperationalError as exc:
            raise SpoolFull(f"the spool cannot be written: {exc}") from exc

    def pending(self, after: int, limit: int = 32) -> list[Kept]:
        """The next frames in order."""
        rows = self._open_db.execute("SELECT n, frame, file FROM outbox WHERE n > ? ORDER BY n LIMIT ?", (after, limit))
        return [Kept(n, json.loads(frame), Path(file) if file else None) for n, frame, file in rows]

    def attach(self, n: int, frame: dict[str, Any]) -> None:
        """The file of a frame was uploaded (or given up): the frame says so from now on, and the copy is gone."""
        with self._writing() as db:
            row = db.execute("SELECT file FROM outbox WHERE n = ?", (n,)).fetchone()
            text = dumps(frame)
            db.execute(
                "UPDATE outbox SET frame = ?, size = ?, file = NULL, file_size = 0 WHERE n = ?", (text, len(text), n)
            )
        if row and row[0]:
            Path(row[0]).unlink(missing_ok=True)

    def settle(self, n: int, refusal: str | None = None) -> dict[str, Any] | None:
        """The relay has answered: the frame, or None if it was answered before."""
        with self._writing() as db:
            row = db.execute("DELETE FROM outbox WHERE n = ? RETURNING frame", (n,)).fetchone()
            if row and refusal is not None:
                db.execute("INSERT OR REPLACE INTO refusals VALUES (?, ?)", (n, refusal))
                db.execute("DELETE FROM refusals WHERE n <= ?", (n - REMEMBERED,))
        return json.loads(row[0]) if row else None

    def waits(self, n: int) -> bool:
        return self._open_db.execute("SELECT 1 FROM outbox WHERE n = ?", (n,)).fetchone() is not None

    def refusal(self, n: int) -> str | None:
        """Why the relay will not have this frame: for another process, which has appended it."""
        row = self._open_db.execute("SELECT message FROM refusals WHERE n = ?", (n,)).fetchone()
        return str(row[0]) if row else None

    def settle_through(self, received: int) -> None:
        """The relay has all up to this number. One that we never gave out means that this file is older than what the
        relay saw (a restored backup): it becomes a new spool, else what waits would pass for known."""
        with self._writing() as db:
            if received < self._next(db):
                db.execute("DELETE FROM outbox WHERE n <= ?", (received,))
                return
            rows = db.execute("SELECT n FROM outbox ORDER BY n").fetchall()
            for new, (old,) in enumerate(rows, 1):
                db.execute("UPDATE outbox SET n = ? WHERE n = ?", (new, old))
            self._set(db, "next", str(len(rows) + 1))
            self._set(db, "spool", str(uuid.uuid4()))
            raise SpoolRenewed

    def identity(self) -> str:
        """The id that the relay counts this file's numbers under."""
        (value,) = self._open_db.execute("SELECT value FROM meta WHERE key = 'spool'").fetchone()
        return str(value)

    def files_bytes(self) -> int:
        (total,) = self._open_db.execute("SELECT coalesce(sum(file_size), 0) FROM outbox").fetchone()
        return int(total)

    # what is open, so that a restart can close it

    def begin_stream(self, local_id: str, chat_id: str, thread_id: str | None) -> None:
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO streams VALUES (?, ?, ?)", (local_id, chat_id, thread_id))

    def interrupt(self, local_id: str) -> bool:
        """Close a half-written message as it stands, unless it was finished meanwhile."""
        with self._writing() as db:
            row = db.execute("SELECT chat_id FROM streams WHERE local_id = ?", (local_id,)).fetchone()
            if row is None:
                return False
            self._append(db, {"type": "interrupted", "chat_id": row[0], "local_id": local_id})
            return True

    def close_ask(self, ask_id: str) -> None:
        with self._writing() as db:
            self._append(db, {"type": "ask.closed", "ask_id": ask_id})

    def recover(self) -> int:
        """Close what an earlier process left open; how much that was."""
        with self._writing() as db:
            streams = db.execute("SELECT local_id, chat_id FROM streams").fetchall()
            asks = db.execute("SELECT ask_id FROM asks").fetchall()
            for local_id, chat_id in streams:
                self._append(db, {"type": "interrupted", "chat_id": chat_id, "local_id": local_id})
            for (ask_id,) in asks:
                self._append(db, {"type": "ask.closed", "ask_id": ask_id})
        return len(streams) + len(asks)

    # what came in

    def take(self, inbound_id: str) -> None:
        """Hermes has begun with it: given again, it is a copy."""
        with self._writing() as db:
            db.execute("INSERT OR IGNORE INTO taken VALUES (?, ?)", (inbound_id, time.time()))
            db.execute("DELETE FROM taken WHERE rowid <= (SELECT max(rowid) FROM taken) - ?", (REMEMBERED,))

    def was_taken(self, inbound_id: str) -> bool:
        return self._open_db.execute("SELECT 1 FROM taken WHERE inbound_id = ?", (inbound_id,)).fetchone() is not None

    # how

    def _append(self, db: sqlite3.Connection, frame: dict[str, Any], file: Path | None = None) -> int:
        text = dumps(frame)
        if frame["type"] not in CLOSING:
            count, size = db.execute("SELECT count(*), coalesce(sum(size), 0) FROM outbox").fetchone()
            if count >= MAX_FRAMES or size + len(text) > MAX_BYTES:
                raise SpoolFull(f"{count} messages wait for the relay already")
        n = self._next(db)
        size_of_file = file.stat().st_size if file else 0
        db.execute(
            "INSERT INTO outbox VALUES (?, ?, ?, ?, ?)", (n, len(text), str(file) if file else None, size_of_file, text)
        )
        self._set(db, "next", str(n + 1))
        if "local_id" in frame:
            db.execute("DELETE FROM streams WHERE local_id = ?", (frame["local_id"],))
        if frame["type"] == "ask":
            db.execute("INSERT OR REPLACE INTO asks VALUES (?)", (frame["ask_id"],))
        elif frame["type"] == "ask.closed":
            db.execute("DELETE FROM asks WHERE ask_id = ?", (frame["ask_id"],))
        return n

    def _connect(self, path: Path) -> None:
        # Of one thread by construction; opened in it or, by the tool that sends once, outside it.
        self._db = db = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.executescript(SCHEMA)
        with self._writing():
            db.execute("INSERT OR IGNORE INTO meta VALUES ('spool', ?)", (str(uuid.uuid4()),))
            db.execute("INSERT OR IGNORE INTO meta VALUES ('next', '1')")

    @property
    def _open_db(self) -> sqlite3.Connection:
        if self._db is None:
            raise sqlite3.ProgrammingError("the spool is closed")
        return self._db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        db = self._open_db
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except SpoolRenewed:
            db.execute("COMMIT")
            raise
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _next(self, db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT value FROM meta WHERE key = 'next'").fetchone()[0])

    def _set(self, db: sqlite3.Connection, key: str, value: str) -> None:
        db.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))


class SpoolRenewed(Exception):
    """The file has another identity now; the relay must hear it in a new hello."""


def dumps(frame: dict[str, Any]) -> str:
    """One JSON object; half a surrogate pair, which no socket carries, becomes a question mark."""
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()
