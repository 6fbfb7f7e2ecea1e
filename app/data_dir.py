"""The data directory: made, writable, and one relay's alone."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import Misconfigured

log = logging.getLogger("talaria")


class InUse(Misconfigured):
    """A relay runs on this data directory."""


@contextmanager
def held(path: Path) -> Iterator[Path]:
    """Ours alone: a second relay would end the turns of the first as cut off, and send those that wait again.

    Raises Misconfigured, InUse.
    """
    make(path)
    directory = os.open(path, os.O_RDONLY)
    try:
        _lock(directory, path)
        yield path
    finally:
        os.close(directory)


def make(path: Path) -> None:
    """Where it is not there yet. Raises Misconfigured, with the path and the uid, where it cannot be used."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise Misconfigured(
            f"the data directory {path.absolute()} cannot be made as uid {os.getuid()}: {exc.strerror}"
        ) from exc
    check(path)


def check(path: Path) -> None:
    """One that is there. Raises Misconfigured, with its path and the uid."""
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise Misconfigured(
            f"the data directory {path.absolute()} belongs to uid {path.stat().st_uid}"
            f" and is not writable for uid {os.getuid()}"
        )


def _lock(directory: int, path: Path) -> None:
    """Until it is closed, or the process ends, however that ends."""
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUse(f"another Talaria is running on the data directory {path.absolute()}") from None
    except OSError as exc:  # some network file systems have no locks
        log.warning("the data directory cannot be locked", extra={"path": str(path), "reason": exc.strerror})
