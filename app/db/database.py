"""One SQLite database: one writer thread that commits queued works together, and a few readers.

A work is an ordinary function `work(tx)` that touches nothing but `tx`. It cannot await and cannot
commit; it may be run again. What it hands to `tx.after_commit` runs on the event loop, in order,
after the commit and before the caller of `write` goes on.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import queue
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

from sqlalchemy import Connection, Engine, NullPool, TextClause, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError

from app.db.migrate import migrate
from app.errors import Misconfigured, Overloaded, RelayError, StorageFailed, StorageFull
from app.metrics import Histogram

log = logging.getLogger("talaria.db")
T = TypeVar("T")
AnyRow: TypeAlias = tuple[Any, ...]
_NONE: Mapping[str, Any] = {}

MAX_QUEUED = 10_000  # works waiting for the writer; over it callers are told to come back
MAX_BATCH = 256  # works in one commit: keeps the wait of the first one short
READERS = 4
FRESH_SECONDS = 10.0  # so long a commit proves that the next one is possible
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC}


class Tx:
    """What a work sees: statements and `after_commit`, no commit.

    Statements are `text()`, whose names SQLite knows itself: they go to the driver, past the layers that map results,
    which cost four times what SQLite does. Rows are tuples.
    """

    __slots__ = ("_connection", "_driver", "callbacks")

    def __init__(self, connection: Connection, driver: sqlite3.Connection) -> None:
        self._connection, self._driver = connection, driver
        self.callbacks: list[Callable[[], None]] = []

    def execute(
        self, statement: TextClause, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] = _NONE
    ) -> sqlite3.Cursor:
        if isinstance(parameters, Mapping):
            return self._driver.execute(statement.text, parameters)
        return self._driver.executemany(statement.text, parameters)

    def one(self, statement: TextClause, parameters: Mapping[str, Any] = _NONE) -> AnyRow | None:
        row: AnyRow | None = self.execute(statement, parameters).fetchone()
        return row

    def all(self, statement: TextClause, parameters: Mapping[str, Any] = _NONE) -> Sequence[AnyRow]:
        return self.execute(statement, parameters).fetchall()

    def expanded(self, statement: TextClause, parameters: Mapping[str, Any]) -> Sequence[AnyRow]:
        """A statement with lists among its parameters (`bindparam(…, expanding=True)`)."""
        return [tuple(row) for row in self._connection.execute(statement, parameters)]

    def after_commit(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


@dataclass(slots=True)
class _Job:
    work: Callable[[Tx], Any]
    answer: asyncio.Future[Any]
    value: Any = None
    error: BaseException | None = None
    callbacks: Sequence[Callable[[], None]] = field(default_factory=list)


class Database:
    """Open it with `open_database`. Bound to the event loop that opened it."""

    def __init__(self, engine: Engine, writing: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._engine, self._writing = engine, writing
        self._loop = loop
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._queued = 0
        self._closed = False
        self._stored_at = -math.inf  # when the last commit was made, unless it failed
        self.commit_seconds = Histogram(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
        self.batch_works = Histogram(1, 2, 4, 8, 16, 32, 64, 128, MAX_BATCH)
        self.failed_commits = 0
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="db-read")
        self._local = threading.local()
        self._reading: list[Connection] = []
        self._writer = threading.Thread(target=self._write_forever, name="db-write", daemon=True)
        self._writer.start()

    @property
    def queued(self) -> int:
        """Works that are not committed yet."""
        return self._queued

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in a transaction. Raises what it raises, StorageFull, StorageFailed, Overloaded."""
        if self._closed:
            raise StorageFailed("the database is closed")
        if self._queued >= MAX_QUEUED:
            raise Overloaded("the relay's database has more to write than it may queue")
        job = _Job(work, self._loop.create_future())
        self._queued += 1
        self._jobs.put(job)
        # Shielded: a caller that goes away does not undo a work that may already be committed.
        return cast("T", await asyncio.shield(job.answer))

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` on one consistent snapshot. It must not write."""
        return await self._loop.run_in_executor(self._readers, self._read, work)

    async def check_writable(self) -> None:
        """Raises unless something was stored just now, or a few new pages can be written and synced."""
        if self._loop.time() - self._stored_at > FRESH_SECONDS:
            await self.write(_probe_space)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._writer.join)
        self._readers.shutdown(wait=True)
        for connection in self._reading:
            connection.close()
        self._engine.dispose()

    # readers

    def _read(self, work: Callable[[Tx], T]) -> T:
        try:
            connection = self._reader()
            try:
                connection.exec_driver_sql("BEGIN")
                return work(Tx(connection, cast("sqlite3.Connection", connection.connection.driver_connection)))
            finally:
                connection.rollback()
        except (DBAPIError, sqlite3.Error) as exc:
            raise _storage_error(exc) from exc

    def _reader(self) -> Connection:
        """Of this thread, opened when it first reads."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._engine.connect()
            connection.exec_driver_sql("PRAGMA query_only=ON")
            self._local.connection = connection
            self._reading.append(connection)
        return connection

    # the writer thread

    def _write_forever(self) -> None:
        connection = self._writing
        driver = cast("sqlite3.Connection", connection.connection.driver_connection)
        while (job := self._jobs.get()) is not None:
            batch = [job]
            last = False
            with suppress(queue.Empty):
                while len(batch) < MAX_BATCH and not last:
                    if (more := self._jobs.get_nowait()) is None:
                        last = True
                    else:
                        batch.append(more)
            self._commit(connection, driver, batch)
            with suppress(RuntimeError):  # the loop is gone: nobody waits any more
                self._loop.call_soon_threadsafe(self._resolve, batch)
            if last:
                break
        connection.close()

    def _commit(self, connection: Connection, driver: sqlite3.Connection, batch: list[_Job]) -> None:
        changes, began = driver.total_changes, time.perf_counter()
        try:
            driver.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._run(connection, driver, job)
            connection.commit()
            driver.commit()
            if driver.total_changes > changes:  # to commit nothing proves nothing
                self._stored_at = self._loop.time()
        except Exception as exc:
            error = _storage_error(exc)
            self._stored_at = -math.inf
            self.failed_commits += 1
            log.error("commit failed", extra={"works": len(batch), "code": error.code, "reason": str(exc)})
            connection.rollback()
            driver.rollback()
            for job in batch:
                job.error, job.callbacks = job.error or error, ()
        self.commit_seconds.observe(time.perf_counter() - began)
        self.batch_works.observe(len(batch))

    def _run(self, connection: Connection, driver: sqlite3.Connection, job: _Job) -> None:
        """One work in its savepoint. A failure that SQLite answers with a rollback of all fails the batch."""
        tx = Tx(connection, driver)
        driver.execute("SAVEPOINT work")
        try:
            job.value = job.work(tx)
            job.callbacks = tx.callbacks
        except Exception as exc:
            failure = _storage_error(exc) if isinstance(exc, DBAPIError | sqlite3.Error) else exc
            if isinstance(failure, StorageFull) or not driver.in_transaction:
                raise
            if isinstance(failure, StorageFailed):
                log.error("a work failed in the database", exc_info=exc)
            driver.execute("ROLLBACK TO work")
            job.error = failure
        driver.execute("RELEASE work")

    # back on the loop

    def _resolve(self, batch: list[_Job]) -> None:
        self._queued -= len(batch)
        for job in batch:
            for callback in job.callbacks:
                try:
                    callback()
                except Exception:
                    log.exception("an after-commit callback failed")
            if job.answer.done():
                continue
            if job.error is not None:
                job.answer.set_exception(job.error)
                job.answer.exception()  # whoever waited may be gone; that is not worth a warning
            else:
                job.answer.set_result(job.value)


def _probe_space(tx: Tx) -> None:
    tx.execute(text("INSERT OR REPLACE INTO meta (key, value) VALUES ('space_probe', zeroblob(16384))"))
    tx.execute(text("DELETE FROM meta WHERE key = 'space_probe'"))


def _storage_error(exc: BaseException) -> RelayError:
    original = exc.orig if isinstance(exc, DBAPIError) else exc
    code = getattr(original, "sqlite_errorcode", None)
    if code in _FULL or "disk is full" in str(original):
        return StorageFull(detail=str(original))
    return StorageFailed(detail=str(original))


def _prepare(driver: sqlite3.Connection, _record: object) -> None:
    driver.isolation_level = None  # transactions are begun by hand: the writer needs BEGIN IMMEDIATE
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "busy_timeout=10000",
        "temp_store=MEMORY",
    ):
        driver.execute(f"PRAGMA {pragma}")


@asynccontextmanager
async def open_database(url: str) -> AsyncIterator[Database]:
    """`sqlite:///path`: migrated to this program's schema, then open until the block ends.

    Raises Misconfigured for another database system, a file that is none or cannot be written, or one written by a
    newer Talaria.
    """
    if make_url(url).get_backend_name() != "sqlite":
        raise Misconfigured("TALARIA_DATABASE_URL: only sqlite is supported by this version")
    engine = create_engine(
        url, poolclass=NullPool, hide_parameters=True, connect_args={"check_same_thread": False, "timeout": 10}
    )
    event.listen(engine, "connect", _prepare)
    loop = asyncio.get_running_loop()
    path = make_url(url).database
    if path:
        with suppress(OSError):  # SQLite says better what is wrong with it
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # -wal and -shm take over this mode
    try:
        await loop.run_in_executor(None, migrate, engine)
        writing = await loop.run_in_executor(None, engine.connect)
    except DBAPIError as exc:
        raise Misconfigured(f"the database {path} cannot be used as uid {os.getuid()}: {exc.orig}") from exc
    db = Database(engine, writing, loop)
    try:
        try:
            await db.check_writable()
        except StorageFull:
            pass  # what is stored can be read, and space may come
        except StorageFailed as exc:
            raise Misconfigured(f"{path} cannot be written as uid {os.getuid()}: {exc.detail}") from exc
        yield db
    finally:
        await db.close()
