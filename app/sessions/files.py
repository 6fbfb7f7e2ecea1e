"""Secrets in the data directory: made once, whole or not at all, readable by their owner only."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.errors import Misconfigured

log = logging.getLogger("talaria.sessions")


def read_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """The file's content; `make()` is stored first if there is no file. Raises Misconfigured naming the path."""
    try:
        if not path.exists():
            _make(path, make())
        _tighten(path)
        return path.read_bytes()
    except OSError as exc:
        raise Misconfigured(f"{path} cannot be read or made as uid {os.getuid()}: {exc.strerror}") from exc


def replace(path: Path, content: bytes) -> None:
    """Exchange the file as one step, for the same owner: root may do it for the relay. Raises Misconfigured."""
    try:
        owner = path.stat()
        with _draft(path, content) as draft:
            if os.geteuid() == 0:
                os.chown(draft, owner.st_uid, owner.st_gid)
            draft.rename(path)
    except OSError as exc:
        raise Misconfigured(f"{path} cannot be replaced as uid {os.getuid()}: {exc.strerror}") from exc


def _make(path: Path, content: bytes) -> None:
    """Of two starters one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _draft(path, content) as draft, suppress(FileExistsError):
        place(draft, path)


@contextmanager
def _draft(path: Path, content: bytes) -> Iterator[Path]:
    """Written beside, to be put into place by a link or a rename: a crash leaves no half a key."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def place(draft: Path, path: Path) -> None:
    """Under its name, unless there is one. Raises FileExistsError."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # file systems without hard links (some shared folders of desktop virtual machines)
        draft.rename(path)


def _tighten(path: Path) -> None:
    """Copies and restores lose modes. Where the file system has none, say so and go on."""
    if path.stat().st_mode & 0o077:
        with suppress(OSError):
            path.chmod(0o600)
        if path.stat().st_mode & 0o077:
            log.warning("a secret file can be read by other users", extra={"path": str(path)})
