"""Uploaded files: what lasts, what goes, and that nothing else stays."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.clock import ManualClock
from app.errors import Overloaded, StorageFull
from app.media import service
from app.media.errors import MediaTooLarge, MediaUnknown, MediaUnsupported
from app.media.service import Media
from tests.media.conftest import DAY, PNG, Opening, get, on_disk, put

MB = 1024 * 1024


async def unknown(media: Media, token: str) -> bool:
    try:
        await get(media, token)
    except MediaUnknown:
        return True
    return False


async def test_an_upload_lasts_over_a_restart(opening: Opening, tmp_path: Path, clock: ManualClock) -> None:
    content = os.urandom(3 * MB + 17)
    async with opening() as media:
        stored = await put(media, content, "../Cat.PNG", "image/png")
        assert re.fullmatch(r"[\w-]{32}", stored.token)
        assert stored.expires_at == clock.now() + 7 * DAY
    (file,) = on_disk(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert stored.token not in file.name
    assert stored.token.encode() not in (tmp_path / "data/talaria.db").read_bytes()
    async with opening() as media:
        assert await get(media, stored.token) == content
        opened = await media.fetch(stored.token)
        opened.file.close()
        assert (opened.name, opened.mime, opened.sensitive) == ("Cat.PNG", "application/octet-stream", False)


async def test_an_empty_file_is_one_too(media: Media) -> None:
    assert await get(media, (await put(media, b"")).token) == b""


async def test_a_file_has_its_time(media: Media, clock: ManualClock, tmp_path: Path) -> None:
    first = await put(media, b"first")
    clock.advance(DAY)
    second = await put(media, b"second")
    clock.advance(6 * DAY - 1)
    await media.sweep()
    assert await get(media, first.token) == b"first"
    clock.advance(1)
    assert await unknown(media, first.token)
    await media.sweep()
    await media.close()  # waits for what is still to be deleted
    assert [file.read_bytes() for file in on_disk(tmp_path)] == [b"second"]
    assert second.expires_at == clock.now() + DAY


@pytest.mark.usefixtures("small_disk")
async def test_what_has_had_its_time_makes_room_on_a_full_disk(
    opening: Opening, tmp_path: Path, clock: ManualClock
) -> None:
    async with opening() as media:
        await put(media, bytes(MB))
        with (tmp_path / "data/filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))
        clock.advance(7 * DAY)
        await media.sweep()
        assert on_disk(tmp_path) == []
        rows = await media._db.read(lambda tx: tx.one(text("SELECT COUNT(*) FROM media")))
        assert rows == (0,)


async def test_a_file_is_synced_before_it_gets_its_name(
    media: Media, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = [], os.fsync

    def sync(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((os.fstat(descriptor).st_ino, len(list((tmp_path / "data/media").glob(".incoming-*")))))

    monkeypatch.setattr(os, "fsync", sync)
    await put(media, b"x")
    (file,) = on_disk(tmp_path)
    assert synced == [(file.stat().st_ino, 1), (file.parent.stat().st_ino, 0)]


async def test_the_quota_takes_the_expired_and_then_the_oldest(
    opening: Opening, clock: ManualClock, tmp_path: Path
) -> None:
    async with opening(media_max_mb=1, media_quota_mb=3) as media:
        tokens = []
        for n in range(3):
            clock.advance(1)
            tokens.append((await put(media, bytes([n]) * MB)).token)
        assert [await unknown(media, token) for token in tokens] == [False, False, False]
        small = (await put(media, b"x")).token
        assert [await unknown(media, token) for token in [*tokens, small]] == [True, False, False, False]
    assert sum(file.stat().st_size for file in on_disk(tmp_path)) == 2 * MB + 1


async def test_rows_are_bounded_too(media: Media, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_ENTRIES", 3)
    tokens = []
    for _ in range(5):
        clock.advance(1)
        tokens.append((await put(media, b"")).token)
    assert [await unknown(media, token) for token in tokens] == [True, True, False, False, False]


async def test_what_is_too_large_leaves_nothing(opening: Opening, tmp_path: Path) -> None:
    async with opening(media_max_mb=5, media_quota_mb=2) as media:  # the lesser of the two
        await put(media, bytes(2 * MB))
        with pytest.raises(MediaTooLarge):
            await put(media, bytes(2 * MB + 1))
        assert len(on_disk(tmp_path)) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync"])
async def test_a_full_disk_is_said_and_leaves_nothing(
    media: Media, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    before = await put(media, b"before")
    real = getattr(os, call)
    calls = 0

    def full(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > (1 if call == "write" else 0):
            raise OSError(code, os.strerror(code))
        return real(*arguments)

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StorageFull):
        await put(media, bytes(5 * MB))
    monkeypatch.undo()
    assert [file.read_bytes() for file in on_disk(tmp_path)] == [b"before"]
    assert await get(media, before.token) == b"before"


@pytest.mark.usefixtures("small_disk")
async def test_a_disk_that_is_really_full(opening: Opening, tmp_path: Path) -> None:
    async with opening() as media:
        before = await put(media, bytes(MB))
        with pytest.raises(StorageFull):
            await put(media, bytes(20 * MB))
        assert len(on_disk(tmp_path)) == 1
        assert await get(media, before.token) == bytes(MB)
        await put(media, bytes(MB))


async def test_a_full_database_leaves_no_file(media: Media, tmp_path: Path) -> None:
    pages = await media._db.read(lambda tx: tx.one(text("PRAGMA page_count")))
    assert pages is not None
    await media._db.write(lambda tx: tx.execute(text(f"PRAGMA max_page_count={pages[0]}")).close())
    stored = 0
    with pytest.raises(StorageFull):  # noqa: PT012
        for _ in range(200):
            await put(media, b"x", "n" * 200)
            stored += 1
    assert len(on_disk(tmp_path)) == stored


async def test_an_upload_that_is_given_up_leaves_nothing(media: Media, tmp_path: Path) -> None:
    began = asyncio.Event()

    async def never_ends() -> None:
        async with media.upload("phone") as upload:
            await upload.add(bytes(3 * MB))
            began.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(never_ends())
        await began.wait()
        assert len(on_disk(tmp_path)) <= 1
        task.cancel()
    assert on_disk(tmp_path) == []


async def test_a_start_removes_what_a_crash_left(opening: Opening, tmp_path: Path) -> None:
    async with opening() as media:
        kept, lost = await put(media, b"kept"), await put(media, b"lost")
        stray = on_disk(tmp_path)[0].with_name(".incoming-0123")
        stray.write_bytes(b"half")
        stray.with_name("f" * 64).write_bytes(b"no row")
        next(file for file in on_disk(tmp_path) if file.read_bytes() == b"lost").unlink()
        assert await unknown(media, lost.token)
    async with opening() as media:
        assert [file.read_bytes() for file in on_disk(tmp_path)] == [b"kept"]
        assert await get(media, kept.token) == b"kept"
        rows = await media._db.read(lambda tx: tx.one(text("SELECT COUNT(*) FROM media")))
        assert rows == (1,)


async def test_one_sender_cannot_have_all_uploads(media: Media) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(service.UPLOADS[1]):
            await stack.enter_async_context(media.upload("a"))
        with pytest.raises(Overloaded):
            async with media.upload("a"):
                pass
        async with media.upload("b"):
            pass
    async with media.upload("a"):
        pass


async def test_a_registered_file_is_served_from_where_it_lies(opening: Opening, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    file = root / "cap.png"
    file.write_bytes(PNG)
    async with opening(media_roots=(str(root),), media_max_mb=1) as media:
        stored = await media.register(
            str(file), content_type="image/jpeg", name="other.png", sensitive=True, sender="operator"
        )
        assert on_disk(tmp_path) == []
        opened = await media.fetch(stored.token)
        opened.file.close()
        assert (opened.name, opened.mime, opened.sensitive) == ("other.png", "image/png", True)
        file.write_bytes(b"<html>")  # it is looked at again each time
        opened = await media.fetch(stored.token)
        opened.file.close()
        assert opened.mime == "application/octet-stream"
        file.write_bytes(bytes(MB + 1))
        assert await unknown(media, stored.token)
        file.unlink()
        file.symlink_to("/etc/passwd")
        assert await unknown(media, stored.token)
    async with opening() as media:  # the root is taken away
        assert await unknown(media, stored.token)


async def test_files_of_messages(media: Media, clock: ManualClock) -> None:
    picture = (await put(media, PNG, "a.png", "image/png")).token
    paper = (await put(media, b"%PDF-1.7", "a.pdf")).token
    found = await media._db.read(lambda tx: media.described(tx, [picture, paper]))
    assert [file["mime"] for file in found] == ["image/png", "application/pdf"]
    assert found[1] == {"token": paper, "name": "a.pdf", "mime": "application/pdf", "size": 8}
    url = await media.picture(picture)
    assert url.startswith("data:image/png;base64,iVBORw0KGgo")
    assert await media._db.read(lambda tx: media.admit_pictures(tx, [picture, picture])) == 2 * len(url)
    for refused in (media.picture(paper), media._db.read(lambda tx: media.admit_pictures(tx, [picture, paper]))):
        with pytest.raises(MediaUnsupported):
            await refused
    for refused in (media.picture("nope"), media._db.read(lambda tx: media.admit_pictures(tx, ["nope"]))):
        with pytest.raises(MediaUnknown):
            await refused
    clock.advance(7 * DAY)
    with pytest.raises(MediaUnknown):
        await media._db.read(lambda tx: media.admit_pictures(tx, [picture]))


async def test_a_file_that_is_closed_while_it_is_read_stays_open_until_then(media: Media) -> None:
    opened = await media.fetch((await put(media, b"x" * MB)).token)
    reads = [media.read(opened.file, 0, MB) for _ in range(8)]
    opened.file.close()
    for read in await asyncio.gather(*reads):
        assert read in (b"x" * MB, b"")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened.file._descriptor)


async def test_a_picture_that_nobody_waits_for_any_more_is_closed(
    media: Media, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, fetch = (await put(media, PNG, "a.png", "image/png")).token, media.fetch
    busy, found = threading.Event(), asyncio.get_running_loop().create_future()

    async def then_all_threads_are_busy(token: str) -> service.Opened:
        opened = await fetch(token)
        for _ in range(service.THREADS):
            media._threads.submit(busy.wait)
        found.set_result(opened)
        return opened

    monkeypatch.setattr(media, "fetch", then_all_threads_are_busy)
    waiting = asyncio.create_task(media.picture(token))
    opened = await found
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    busy.set()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened.file._descriptor)


async def test_an_upload_that_outlives_the_store_leaves_nothing(media: Media, tmp_path: Path) -> None:
    async with media.upload("phone") as upload:
        await upload.add(bytes(2 * MB))
        await media.close()
    assert list((tmp_path / "data/media").iterdir()) == []
