"""The files of the store, and any regular file that is open. Everything here blocks: it is called in threads."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import stat
import threading
from collections.abc import Iterable
from pathlib import Path

from app.errors import Misconfigured, RelayError, StorageFailed, StorageFull

log = logging.getLogger("talaria.media")

_FULL = {errno.ENOSPC, errno.EDQUOT}
_DRAFT = ".incoming-"


def storage_error(exc: OSError) -> RelayError:
    if exc.errno in _FULL:
        return StorageFull(detail=str(exc.strerror))
    return StorageFailed("the relay's media directory failed", detail=str(exc.strerror))


class OpenFile:
    """A regular file that is open for reading. Whoever has it closes it."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor over."""
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._reads, self._closed = 0, False
        self.status = os.fstat(descriptor)
        self.size = self.status.st_size
        of = f"{self.status.st_dev}:{self.status.st_ino}:{self.status.st_mtime_ns}:{self.size}"
        self.etag = f'"{hashlib.sha256(of.encode()).hexdigest()[:24]}"'  # hashed: it tells nothing of the host

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    def read(self, offset: int, size: int) -> bytes:
        """Short only where the file ends, or was closed."""
        with self._lock:
            if self._closed:
                return b""
            self._reads += 1
        try:
            return os.pread(self._descriptor, size, offset)
        finally:
            with self._lock:
                self._reads -= 1
                self._close_if_idle()

    def close(self) -> None:
        """At once, or when the last read in another thread is done. A number that is free again is another file."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._closed and not self._reads:
            os.close(self._descriptor)


class Draft:
    """A file on its way in, under a name that no token leads to until it is kept. Made when first written to."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"{_DRAFT}{secrets.token_hex(8)}"
        self._lock = threading.Lock()  # it may be dropped while a thread writes
        self._descriptor: int | None = None
        self._ended = False

    def write(self, data: bytes | bytearray) -> None:
        """All of it. Raises StorageFull, StorageFailed."""
        with self._lock, memoryview(data) as rest:
            if self._ended:
                return
            try:
                descriptor, written = self._opened(), 0
                while written < len(rest):
                    written += os.write(descriptor, rest[written:])
            except OSError as exc:
                raise storage_error(exc) from exc

    def keep(self, name: str) -> None:
        """Whole, synced, under its own name. Raises StorageFull, StorageFailed."""
        with self._lock:
            if self._ended:
                return
            try:
                os.fsync(self._opened())
                self._path = self._path.rename(self._path.with_name(name))
                _sync_directory(self._path.parent)
            except OSError as exc:
                raise storage_error(exc) from exc

    def settle(self) -> None:
        """What was kept stays: `drop` does nothing any more."""
        with self._lock:
            self._end()

    def drop(self) -> None:
        """Nothing is left of it, whatever has become of it."""
        with self._lock:
            if self._end():
                self._path.unlink(missing_ok=True)

    def _opened(self) -> int:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        return self._descriptor

    def _end(self) -> bool:
        """Whether there is a file."""
        self._ended, descriptor = True, self._descriptor
        self._descriptor = None
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is not None


class Shelf:
    """The directory of uploaded files: one file for each row, called by the row's id."""

    def __init__(self, directory: Path) -> None:
        """Raises Misconfigured."""
        self._directory = directory
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as exc:
            raise Misconfigured(f"{directory} cannot be made as uid {os.getuid()}: {exc.strerror}") from exc

    def draft(self) -> Draft:
        return Draft(self._directory)

    def open(self, name: str) -> OpenFile | None:
        """None: it is gone."""
        try:
            return OpenFile(os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise storage_error(exc) from exc

    def names(self) -> set[str]:
        return set(os.listdir(self._directory))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                (self._directory / name).unlink(missing_ok=True)
            except OSError as exc:  # the next start finds it again
                log.warning("a file could not be deleted", extra={"reason": exc.strerror})


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
