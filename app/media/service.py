"""Files by token: uploaded ones, which the relay stores, and registered ones, which stay where they are."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from app.clock import Clock
from app.db import Database, Tx
from app.media import store
from app.media.errors import MediaTooLarge, MediaUnknown, MediaUnsupported, PathDenied, PathMissing
from app.media.files import OpenFile, Shelf
from app.media.names import clean_name
from app.media.roots import Roots
from app.media.slots import Slots
from app.media.sniff import HEAD, declared, media_type
from app.media.store import Item
from app.media.upload import Upload
from app.settings import MediaSettings

log = logging.getLogger("talaria.media")

MB = 1024 * 1024
MAX_ENTRIES = 20_000  # rows; an empty file costs no quota
THREADS = 4
UPLOADS = 24, 8  # at once, of all and of one sender, 2 MiB of memory each; browsers and phones send up to six
DOWNLOADS = 64, 32  # likewise, 1 MiB each
STEP = 500  # rows of one transaction
PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}  # what models take

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stored:
    token: str
    expires_at: float
    sensitive: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """A file to be served: whoever has it closes `file`."""

    file: OpenFile
    name: str
    mime: str
    sensitive: bool


class Media:
    """Open it with `open_media`."""

    def __init__(self, settings: MediaSettings, db: Database, clock: Clock, data_dir: Path) -> None:
        self._db, self._clock = db, clock
        self._quota, self._ttl = settings.media_quota_mb * MB, settings.media_ttl
        self.max_size = min(settings.media_max_mb * MB, self._quota)  # bytes of one file
        self._roots = Roots(settings.media_roots, data_dir)
        self._shelf = Shelf(data_dir / "media")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="media")
        self._uploads, self._downloads = Slots(*UPLOADS), Slots(*DOWNLOADS)

    # in

    @asynccontextmanager
    async def upload(self, sender: str) -> AsyncIterator[Upload]:
        """Unless `store` has it at the end of the block, nothing is left of it. Raises Overloaded."""
        with self._uploads.taken(sender):
            upload = Upload(self._shelf.draft(), self._threads, self.max_size)
            try:
                yield upload
            finally:
                await upload.end()

    async def store(self, upload: Upload, *, sender: str, name: str, content_type: str | None) -> Stored:
        """Make it last, and the oldest go where the quota needs it. Raises StorageFull, StorageFailed."""
        name = clean_name(name)
        mime = media_type(declared(content_type, name), upload.head)
        token, item = self._new(None, name, mime, upload.size, sensitive=False, sender=sender)
        await upload.keep(item.media_id)
        try:
            await self._db.write(lambda tx: self._insert(tx, item))
        except asyncio.CancelledError:
            upload.settle()  # the row may be there already
            raise
        upload.settle()
        return Stored(token, item.expires_at, sensitive=False)

    async def register(
        self, path: str, *, content_type: str, name: str | None, sensitive: bool, sender: str
    ) -> Stored:  # fmt: skip
        """A token for a file of this host. Raises PathDenied, PathMissing, MediaTooLarge, StorageFull."""
        opened = await self.by_path(path, content_type=content_type, name=name, sensitive=sensitive)
        opened.file.close()
        size = opened.file.size
        token, item = self._new(path, opened.name, opened.mime, size, sensitive=sensitive, sender=sender)
        await self._db.write(lambda tx: self._insert(tx, item))
        return Stored(token, item.expires_at, sensitive)

    def _new(
        self, path: str | None, name: str, mime: str, size: int, *, sensitive: bool, sender: str
    ) -> tuple[str, Item]:  # fmt: skip
        token, now = secrets.token_urlsafe(24), self._clock.now()
        return token, Item(media_id(token), path, name, mime, size, sensitive, sender, now, now + self._ttl)

    def _insert(self, tx: Tx, item: Item) -> None:
        ids, gone = store.expired(tx, item.created_at, STEP)
        store.forget(tx, ids)
        gone += store.make_room(tx, 0 if item.path else item.size, self._quota, MAX_ENTRIES)
        store.insert(tx, item)
        if gone:
            tx.after_commit(lambda: self._remove(gone))

    # out

    async def fetch(self, token: str) -> Opened:
        """Raises MediaUnknown, StorageFailed."""
        item = await self._db.read(lambda tx: store.one(tx, media_id(token)))
        if item is None or item.expires_at <= self._clock.now():
            raise MediaUnknown()
        try:
            return await self._opened(lambda: self._open(item))
        except (PathDenied, PathMissing, MediaTooLarge) as exc:  # it was there when it was registered
            raise MediaUnknown(detail=exc.message) from exc

    async def by_path(
        self, path: str, *, content_type: str | None = None, name: str | None = None, sensitive: bool = False
    ) -> Opened:  # fmt: skip
        """Raises PathDenied, PathMissing, MediaTooLarge."""

        def open_() -> Opened:
            shown = clean_name(name or path)
            return _looked_at(self._in_roots(path), shown, declared(content_type, shown), sensitive=sensitive)

        return await self._opened(open_)

    def serving(self, caller: str) -> AbstractContextManager[None]:
        """Held while a file is sent. Raises Overloaded."""
        return self._downloads.taken(caller)

    def read(self, file: OpenFile, offset: int, size: int) -> asyncio.Future[bytes]:
        return self._run(lambda: file.read(offset, size))

    async def _opened(self, work: Callable[[], Opened]) -> Opened:
        opening = self._run(work)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unclaimed)
            raise

    def _open(self, item: Item) -> Opened:
        file = self._shelf.open(item.media_id) if item.path is None else self._in_roots(item.path)
        if file is None:
            raise MediaUnknown()
        said = item.mime if item.path is None else declared(item.mime, item.name)
        return _looked_at(file, item.name, said, sensitive=item.sensitive)

    def _in_roots(self, path: str) -> OpenFile:
        file = self._roots.open(path)
        if file.size > self.max_size:
            file.close()
            raise MediaTooLarge(f"file too large: at most {self.max_size} bytes")
        return file

    # for messages that carry files

    def described(self, tx: Tx, tokens: Sequence[str]) -> list[dict[str, Any]]:
        """As a message names its files: {token, name, mime, size, sensitive?}. Part of a work. Raises MediaUnknown."""
        return [
            {"token": token, "name": item.name, "mime": item.mime, "size": item.size}
            | ({"sensitive": True} if item.sensitive else {})
            for token, item in zip(tokens, self._items(tx, tokens), strict=True)
        ]

    def _items(self, tx: Tx, tokens: Sequence[str]) -> list[Item]:
        now, found = self._clock.now(), []
        for token in tokens:
            item = store.one(tx, media_id(token))
            if item is None or item.expires_at <= now:
                raise MediaUnknown()
            found.append(item)
        return found

    def admit_pictures(self, tx: Tx, tokens: Sequence[str]) -> int:
        """How many characters they have as `data:` URLs. Part of a work. Raises MediaUnknown, MediaUnsupported."""
        items = self._items(tx, tokens)
        if any(item.mime not in PICTURES for item in items):
            raise MediaUnsupported()
        return sum(len(_data_url(item.mime, b"")) + (item.size + 2) // 3 * 4 for item in items)

    async def picture(self, token: str) -> str:
        """As a `data:` URL. Raises MediaUnknown, MediaUnsupported."""
        opened = await self.fetch(token)
        try:
            if opened.mime not in PICTURES:
                raise MediaUnsupported()
            return await self._run(lambda: _data_url(opened.mime, opened.file.read(0, opened.file.size)))
        finally:
            opened.file.close()

    # what has had its time

    async def count(self) -> int:
        """Files that can be fetched, or could until a moment ago."""
        return await self._db.read(store.count)

    async def sweep(self) -> None:
        """Files first: on a full disk that makes the room in which their rows can be deleted.

        Raises StorageFull, StorageFailed.
        """
        now, more = self._clock.now(), True
        while more:
            ids, files = await self._db.read(lambda tx: store.expired(tx, now, STEP))
            await self._run(lambda files=files: self._shelf.remove(files))  # type: ignore[misc]
            await self._db.write(lambda tx, ids=ids: store.forget(tx, ids))  # type: ignore[misc]
            more = len(ids) == STEP

    async def recover(self) -> None:
        """Files without a row, which are what a crash leaves, and rows without a file."""
        known = await self._db.read(store.uploaded)
        present = await self._run(self._shelf.names)
        await self._run(lambda: self._shelf.remove(present - known))
        lost = sorted(known - present)
        for start in range(0, len(lost), STEP):
            step = lost[start : start + STEP]
            await self._db.write(lambda tx, step=step: store.forget(tx, step))  # type: ignore[misc]
        if strays := len(present - known):
            log.info("files that no token leads to were deleted", extra={"files": strays})
        if lost:
            log.warning("uploaded files are gone", extra={"files": len(lost)})

    def _remove(self, media_ids: Iterable[str]) -> None:
        self._threads.submit(self._shelf.remove, media_ids)

    def _run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)


def _looked_at(file: OpenFile, name: str, said: str, *, sensitive: bool) -> Opened:
    try:
        return Opened(file, name, media_type(said, file.read(0, HEAD)), sensitive)
    except BaseException:
        file.close()
        raise


def _close_unclaimed(opening: asyncio.Future[Opened]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().file.close()


def media_id(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _data_url(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


@asynccontextmanager
async def open_media(settings: MediaSettings, *, db: Database, clock: Clock, data_dir: Path) -> AsyncIterator[Media]:
    """Tidied up, open until the block ends. Raises Misconfigured."""
    media = Media(settings, db, clock, data_dir)
    try:
        await media.recover()
        yield media
    finally:
        await media.close()
