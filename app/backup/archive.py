"""A backup: one tar file, compressed, that holds a manifest, the database and the files of keys.

The manifest comes first and has the digest of each file, so that half a backup is known as such. Uploaded files are
not in it: they live for a week.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import sqlite3
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from app import __version__
from app.backup import drafts
from app.backup.errors import BackupFailed, BackupInvalid
from app.db import files

DATABASE = "talaria.db"
KEYS = (
    "operator-token", "link-token", "session-keys.json", "pairing-key", "qr-secret", "identity.key", "vapid.key",
)  # fmt: skip
MANIFEST = "manifest.json"
FORMAT = 1
MAX_SMALL = 1 << 20  # bytes of a manifest, or of a file of keys
CHUNK = 1 << 20
KEEP_FREE = 20 << 20  # bytes
LATEST = 253_402_300_799 - 2 * 86400  # the last time that has a date, in every zone


@dataclass(frozen=True, slots=True)
class Manifest:
    version: str
    made_at: float
    digests: dict[str, str]  # file → SHA-256, in hex


def write(data_dir: Path, database: Path, to: IO[bytes], now: float) -> Manifest:
    """Raises BackupFailed. The relay may run meanwhile, and what it keeps after the copy is made is not in it."""
    try:
        with drafts.scratch(data_dir) as scratch:
            files.copy(database, scratch / DATABASE)
            for name in KEYS:
                if (data_dir / name).is_file():
                    shutil.copyfile(data_dir / name, scratch / name)
            there = [name for name in (*KEYS, DATABASE) if (scratch / name).exists()]
            manifest = Manifest(__version__, now, {name: _digest(scratch / name) for name in there})
            _pack(scratch, manifest, to)
            return manifest
    except (OSError, sqlite3.Error) as exc:
        raise BackupFailed(
            f"the backup of {database} could not be made in {data_dir} as uid {os.getuid()}: {exc}"
        ) from exc


def _pack(scratch: Path, manifest: Manifest, to: IO[bytes]) -> None:
    said = {
        "talaria": FORMAT, "version": manifest.version, "made_at": manifest.made_at, "files": manifest.digests,
    }  # fmt: skip
    with tarfile.open(fileobj=to, mode="w|gz", format=tarfile.PAX_FORMAT) as tar:
        content = orjson.dumps(said, option=orjson.OPT_INDENT_2)
        tar.addfile(_member(MANIFEST, len(content), manifest.made_at), io.BytesIO(content))
        for name in manifest.digests:
            path = scratch / name
            with path.open("rb") as file:
                tar.addfile(_member(name, path.stat().st_size, manifest.made_at), file)


def _member(name: str, size: int, made_at: float) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, int(made_at), 0o600
    return member


@contextmanager
def unpacked(source: IO[bytes], beside: Path) -> Iterator[tuple[Path, Manifest]]:
    """Its files, checked, in a directory in `beside` that is gone at the end.

    The database has this program's schema: that it can have it is known before a relay is stopped for it.
    Raises BackupInvalid, BackupFailed, Misconfigured (the backup is of a newer Talaria).
    """
    try:
        with drafts.scratch(beside) as scratch:
            manifest = _unpack(source, scratch)
            files.check(scratch / DATABASE)
            files.migrate_file(scratch / DATABASE)
            yield scratch, manifest
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, sqlite3.Error) as exc:
        raise BackupInvalid(f"this is not a whole backup of Talaria: {exc}") from exc
    except OSError as exc:
        raise BackupFailed(f"the backup could not be unpacked as uid {os.getuid()}: {exc}") from exc


def _unpack(source: IO[bytes], scratch: Path) -> Manifest:
    with gzip.GzipFile(fileobj=source) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
        manifest: Manifest | None = None
        for member in tar:
            content = tar.extractfile(member)
            if content is None:
                raise BackupInvalid(f"this backup holds something that is no file: {member.name!r}")
            if manifest is None:
                manifest = _manifest(member, content)
                continue
            if member.name not in manifest.digests:
                raise BackupInvalid(f"this backup holds a file that it does not name: {member.name!r}")
            if member.name != DATABASE and member.size > MAX_SMALL:
                raise BackupInvalid(f"{member.name} in this backup is too large to hold keys")
            if member.size > shutil.disk_usage(scratch).free - KEEP_FREE:  # a relay may run beside, and needs some
                raise BackupFailed(f"there is no room beside {scratch.parent} for {member.size:,} bytes of this backup")
            with open(scratch / member.name, "xb", opener=drafts.private) as file:
                shutil.copyfileobj(content, file, CHUNK)
        if len(plain.read(MAX_SMALL)) == MAX_SMALL or plain.read(1):  # its sum, which is at the end, is of all of it
            raise BackupInvalid("this backup goes on after its end")
    if manifest is None:
        raise BackupInvalid("this backup is empty")
    for name, digest in manifest.digests.items():
        if not (scratch / name).is_file() or _digest(scratch / name) != digest:
            raise BackupInvalid(f"{name} in this backup is damaged or missing")
    return manifest


def _manifest(member: tarfile.TarInfo, content: IO[bytes]) -> Manifest:
    """Raises BackupInvalid."""
    said: Any = None
    if member.name == MANIFEST and member.size <= MAX_SMALL:
        with suppress(orjson.JSONDecodeError):
            said = orjson.loads(content.read())
    match said:
        case {"talaria": int() as format_, "version": str() as version} if format_ > FORMAT:
            raise BackupInvalid(f"this backup was made by a newer Talaria ({version}): install that version first")
        case {
            "talaria": int(),
            "version": str() as version,
            "made_at": int() | float() as at,
            "files": dict() as names,
        }:
            pass
        case _:
            raise BackupInvalid("this is not a backup of Talaria")
    if not 0 <= at <= LATEST or DATABASE not in names or not names.keys() <= {DATABASE, *KEYS}:
        raise BackupInvalid("this is not a backup of Talaria")
    return Manifest(version, float(at), {str(name): str(digest) for name, digest in names.items()})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
