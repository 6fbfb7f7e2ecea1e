"""What is written on the way to a backup or a restore, and what runs that were killed have left of it.

Both hold keys. Each is locked while it is in use, and a lock ends with its process: what can be locked is left over.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from app.backup.errors import BackupFailed
from app.sessions.files import place

SCRATCH = ".backup-"
DRAFT = (".talaria-", ".part")


@contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """In the data directory: there is room for a copy of what is there, and nobody else may read it."""
    sweep(beside)
    made = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=beside))
    try:
        with _locked(os.open(made, os.O_RDONLY)):
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def sweep(data_dir: Path) -> None:
    for left in data_dir.glob(f"{SCRATCH}*"):
        _remove_unused(left, shutil.rmtree)


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears whole, 0600, or not at all. Raises BackupFailed if it is there already.

    Written under a name of its own: two that write at once must not share a draft, and the first to end wins.
    """
    for left in path.parent.glob("*".join(DRAFT)):
        _remove_unused(left, Path.unlink)
    draft = path.parent / secrets.token_hex(4).join(DRAFT)
    try:
        if path.exists():
            raise FileExistsError
        with open(draft, "xb", opener=private) as file, _locked(os.dup(file.fileno())):
            yield file
            file.flush()
            os.fsync(file.fileno())
        place(draft, path)
    except FileExistsError:
        raise BackupFailed(f"{path} is there already: name another file") from None
    except OSError as exc:
        raise BackupFailed(f"{path} could not be written as uid {os.getuid()}: {exc.strerror}") from exc
    finally:
        with suppress(OSError):
            draft.unlink()


def private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    try:
        with suppress(OSError):  # some network file systems have no locks, and then nothing there is swept either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_unused(left: Path, remove: Callable[[Path], None]) -> None:
    """What is still empty may be about to be locked, and holds no key."""
    with suppress(OSError):  # in use, gone meanwhile, or another user's
        descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if any(left.iterdir()) if left.is_dir() else left.stat().st_size:
                remove(left)
        finally:
            os.close(descriptor)
