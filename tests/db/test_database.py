from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from app.db import Database, Tx, open_database
from app.errors import Misconfigured, NotFound, Overloaded, StorageFailed, StorageFull

PUT = text("INSERT INTO meta (key, value) VALUES (:key, :value)")
KEYS = text("SELECT key FROM meta ORDER BY key")


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(f"sqlite:///{tmp_path}/t.db") as db:
        yield db


def put(key: str, size: int = 1) -> Callable[[Tx], int]:
    return lambda tx: tx.execute(PUT, {"key": key, "value": b"x" * size}).rowcount


async def keys(db: Database) -> list[str]:
    return await db.read(lambda tx: [row[0] for row in tx.all(KEYS)])


async def test_a_work_that_fails_takes_back_only_its_own_writes(db: Database) -> None:
    def half(tx: Tx) -> None:
        tx.execute(PUT, {"key": "half", "value": b"x"})
        raise NotFound("no")

    first, failed, last = await asyncio.gather(
        db.write(put("first")), db.write(half), db.write(put("last")), return_exceptions=True
    )
    assert (first, last) == (1, 1)
    assert isinstance(failed, NotFound)
    assert await keys(db) == ["first", "last"]


async def test_a_statement_the_database_refuses_fails_its_work_alone(db: Database) -> None:
    await db.write(put("a"))
    twice, other = await asyncio.gather(db.write(put("a")), db.write(put("b")), return_exceptions=True)
    assert isinstance(twice, StorageFailed)
    assert other == 1
    assert await keys(db) == ["a", "b"]


async def test_after_commit_runs_in_order_before_the_caller_goes_on_and_never_for_a_failed_work(db: Database) -> None:
    said: list[str] = []

    def work(name: str, *, fail: bool = False) -> Callable[[Tx], None]:
        def run(tx: Tx) -> None:
            tx.execute(PUT, {"key": name, "value": b"x"})
            tx.after_commit(lambda: said.append(name))
            if fail:
                raise NotFound()

        return run

    await asyncio.gather(
        db.write(work("one")), db.write(work("two", fail=True)), db.write(work("three")), return_exceptions=True
    )
    assert said == ["one", "three"]


async def test_queued_works_share_a_commit(db: Database, tmp_path: Path) -> None:
    """The write-ahead log holds a commit mark per transaction: 200 works make far fewer."""
    await db.read(lambda tx: tx.one(text("PRAGMA wal_checkpoint(TRUNCATE)")))
    seen: list[int] = []
    watch = sqlite3.connect(f"{tmp_path}/t.db")

    async def one(i: int) -> None:
        await db.write(put(f"k{i}"))
        seen.append(watch.execute("PRAGMA data_version").fetchone()[0])

    await asyncio.gather(*(one(i) for i in range(200)))
    watch.close()
    assert len(await keys(db)) == 200
    assert len(set(seen)) < 20  # each commit that another connection sees changes data_version


async def test_a_caller_that_goes_away_leaves_the_work_committed(db: Database) -> None:
    task = asyncio.ensure_future(db.write(put("kept")))
    await asyncio.sleep(0)
    task.cancel()
    await db.write(put("later"))
    assert await keys(db) == ["kept", "later"]


async def fill(db: Database) -> list[str]:
    """Returns the keys that found room."""
    for n in range(100):
        try:
            await db.write(put(f"k{n:02}", 4000))
        except StorageFull:
            return [f"k{i:02}" for i in range(n)]
    raise AssertionError("there is always room")


async def test_a_full_disk_fails_writes_with_its_name_and_reads_go_on(db: Database) -> None:
    """max_page_count makes SQLite answer SQLITE_FULL, as a full disk does."""
    pages = (await db.read(lambda tx: tx.one(text("PRAGMA page_count"))))[0]  # type: ignore[index]
    await db.write(lambda tx: tx.execute(text(f"PRAGMA max_page_count={pages + 2}")).close())
    with pytest.raises(StorageFull):
        await db.write(put("big", 1_000_000))
    full = await fill(db)
    await db.write(lambda tx: tx.one(KEYS))  # writes nothing, so it proves nothing
    with pytest.raises(StorageFull):
        await db.check_writable()
    assert await keys(db) == full
    await db.write(lambda tx: tx.execute(text("PRAGMA max_page_count=100000")).close())
    await db.check_writable()
    await db.write(put("big", 1_000_000))
    assert await keys(db) == ["big", *full]


async def test_storing_is_proved_by_a_commit_that_worked_or_by_trying(db: Database, tmp_path: Path) -> None:
    """Whatever hinders the next one: here another program that holds the database."""
    other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    await db.write(lambda tx: tx.execute(text("PRAGMA busy_timeout=0")).close())
    other.execute("BEGIN IMMEDIATE")
    await db.check_writable()
    with pytest.raises(StorageFailed):
        await db.write(put("a"))
    with pytest.raises(StorageFailed):
        await db.check_writable()
    other.execute("ROLLBACK")
    await db.check_writable()
    other.close()


async def test_a_database_that_cannot_be_opened_again_fails_by_name(tmp_path: Path) -> None:
    """Readers open it when they are first needed, at worst when the process has no file left to open."""
    (tmp_path / "d").mkdir()
    async with open_database(f"sqlite:///{tmp_path}/d/t.db") as db:
        (tmp_path / "d").rename(tmp_path / "e")
        with pytest.raises(StorageFailed):
            await keys(db)
        (tmp_path / "e").rename(tmp_path / "d")
        assert await keys(db) == []


async def test_the_queue_is_bounded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.db.database.MAX_QUEUED", 10)
    results = await asyncio.gather(*(db.write(put(f"k{i}")) for i in range(30)), return_exceptions=True)
    refused = [r for r in results if isinstance(r, Overloaded)]
    assert len(refused) == 20
    assert await db.write(put("again")) == 1


async def test_a_read_sees_one_snapshot_and_cannot_write(db: Database) -> None:
    with pytest.raises(StorageFailed):
        await db.read(put("no"))
    assert await keys(db) == []


async def test_what_was_written_is_there_after_reopening_and_a_closed_database_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    async with open_database(url) as db:
        await db.write(put("a"))
    with pytest.raises(StorageFailed):
        await db.write(put("b"))
    async with open_database(url) as db:
        assert await keys(db) == ["a"]


async def test_only_the_owner_can_read_the_files(db: Database, tmp_path: Path) -> None:
    await db.write(put("a"))
    files = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    assert files == dict.fromkeys(("t.db", "t.db-wal", "t.db-shm"), "0o600")


async def test_a_file_that_is_no_database_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_bytes(b"this is not a database file at all, not even close" * 40)
    with pytest.raises(Misconfigured, match=r"t\.db"):
        async with open_database(f"sqlite:///{tmp_path}/t.db"):
            pass


async def test_a_database_that_cannot_be_written_is_refused_with_its_path(db: Database, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=rf"t\.db.* cannot be written as uid {os.getuid()}: .*readonly"):
        async with open_database(f"sqlite:///file:{tmp_path}/t.db?mode=ro&uri=true"):
            pass


async def test_errors_do_not_carry_the_values_of_a_statement(db: Database) -> None:
    await db.write(put("a"))
    with pytest.raises(StorageFailed) as failure:
        await db.write(lambda tx: tx.execute(PUT, {"key": "a", "value": b"hunter2"}).close())
    assert "hunter2" not in repr(failure.value.__cause__) + str(failure.value) + failure.value.detail
