from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.clock import ManualClock
from app.db import open_database
from app.media.service import Media, Stored, open_media
from app.settings import MediaSettings

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
DAY = 86400

Opening = Callable[..., AbstractAsyncContextManager[Media]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def opening(tmp_path: Path, clock: ManualClock) -> Opening:
    """Opens the store in one data directory; again after it is closed: a restart."""

    @asynccontextmanager
    async def open_(**settings: Any) -> AsyncIterator[Media]:
        data = tmp_path / "data"
        data.mkdir(exist_ok=True)
        async with (
            open_database(f"sqlite:///{data / 'talaria.db'}") as db,
            open_media(MediaSettings(**settings), db=db, clock=clock, data_dir=data) as media,
        ):
            yield media

    return open_


@pytest.fixture
async def media(opening: Opening) -> AsyncIterator[Media]:
    async with opening() as media:
        yield media


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The data directory is a disk of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "data"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def put(media: Media, content: bytes, name: str = "a.bin", content_type: str | None = None) -> Stored:
    async with media.upload("phone") as upload:
        for start in range(0, len(content), 100_000):
            await upload.add(content[start : start + 100_000])
        return await media.store(upload, sender="phone", name=name, content_type=content_type)


async def get(media: Media, token: str) -> bytes:
    opened = await media.fetch(token)
    try:
        return await media.read(opened.file, 0, opened.file.size)
    finally:
        opened.file.close()


def on_disk(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "data" / "media").iterdir())
