"""Files of this host by their path: only under the directories that the operator names, and never a secret.

A path is walked from `/` one component at a time, each opened below the one before and never through a link, so that
what was checked is what is read, whoever renames and links meanwhile. Everything here blocks: it is called in threads.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import translate
from pathlib import Path

from app.errors import Misconfigured
from app.media.errors import PathDenied, PathMissing
from app.media.files import OpenFile

MAX_PATH, MAX_NAME = 4096, 255  # bytes, as the system has them

# What holds credentials by its name: Hermes' own files, the copies of them that it and editors leave, and what users
# keep beside them. Any component, in any case.
_PRIVATE_NAMES = """
    .env* *.env *.env.* auth auth.lock *auth*.json* *token*.json* *credentials *credentials.* *creds*.json secrets
    *secret*.json* bws_cache.json *config.y*ml* gateway.json* honcho.json* mem0.json* state.db* mcp-tokens pairing
    webhook_subscriptions.json* state-snapshots hermes-backup-* pre-*.zip hermes-relay-*
    *.key *.pem *.p12 *.pfx *.kdbx *.keychain* id_rsa* id_dsa* id_ecdsa* id_ed25519* .ssh .gnupg .aws .azure .gcloud
    gcloud .kube .docker .netrc _netrc .npmrc .pypirc .pgpass .git .git-credentials .password-store keychains keyrings
    shadow shadow- *_history
"""
_PRIVATE = re.compile("|".join(map(translate, _PRIVATE_NAMES.split())))
_SYSTEM = {"etc", "proc", "sys", "dev", "boot"}  # directories of `/`

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe without a writer must not hold us


class Roots:
    """`private` is the relay's own data directory. Raises Misconfigured for a directory that may not be a root."""

    def __init__(self, roots: Iterable[str], private: Path) -> None:
        self._private = private.resolve()
        self._roots: list[tuple[list[str], list[str]]] = []  # components as they are written, and where they lead
        for root in roots:
            real = Path(root).resolve()
            self._check_root(root, real)
            self._roots.append((_components(root), _components(str(real))))

    def _check_root(self, root: str, real: Path) -> None:
        parts = _components(str(real))
        if not parts:
            raise Misconfigured("TALARIA_MEDIA_ROOTS: / holds everything; name the directories that devices may see")
        if real.is_relative_to(self._private):
            raise Misconfigured(f"TALARIA_MEDIA_ROOTS: {root} lies in the relay's data directory")
        if ".." in _components(root) or _is_private(parts):
            raise Misconfigured(f"TALARIA_MEDIA_ROOTS: {root} may hold secrets, and is never served")

    def open(self, path: str) -> OpenFile:
        """A regular file, open. Raises PathDenied, also where there is no such file, and PathMissing."""
        parts = self._checked(path)
        at = os.open("/", _DIRECTORY)
        try:
            for name in parts[:-1]:
                below = self._enter(at, name, path)
                os.close(at)
                at = below
            return self._file(at, parts[-1], path)
        finally:
            os.close(at)

    def _checked(self, path: str) -> list[str]:
        """Its real components, as far as the words of the path say. Raises PathDenied, PathMissing."""
        if not path.startswith("/"):
            raise PathDenied(f"path must be absolute: {path!r}")
        if not _can_be(path):
            raise PathMissing("path does not exist: it is too long, or no path at all")
        parts = _components(path)
        for written, real in self._roots:
            for root in (written, real):
                below = parts[len(root) :]
                if below and parts[: len(root)] == root:
                    if ".." in below or _is_private(below, system=False):
                        raise _secret(path)
                    return real + below
        if _is_private(parts):
            raise _secret(path)
        raise PathDenied(f"path is not under an allowed root: {path!r}")

    def _enter(self, at: int, name: str, path: str) -> int:
        try:
            below = os.open(name, _DIRECTORY, dir_fd=at)
        except OSError as exc:
            raise _refusal(exc, at, name, path) from None
        if _is_same(os.fstat(below), self._private):
            os.close(below)
            raise _secret(path)
        return below

    def _file(self, at: int, name: str, path: str) -> OpenFile:
        try:
            # Looked at first: to open a device may already do something.
            if not stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                raise _irregular(at, name, path)
            file = OpenFile(os.open(name, _FILE, dir_fd=at))
        except OSError as exc:
            raise _refusal(exc, at, name, path) from None
        if not file.is_regular:
            file.close()
            raise PathDenied(f"path is not a regular file: {path!r}")
        if file.status.st_nlink > 1:  # its other name may be that of a secret
            file.close()
            raise PathDenied(f"path is a hard link: {path!r}")
        return file


def _can_be(path: str) -> bool:
    """Also bounds what the patterns are tried on."""
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return b"\0" not in raw and len(raw) < MAX_PATH and all(len(name) <= MAX_NAME for name in raw.split(b"/"))


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _is_private(parts: Sequence[str], *, system: bool = True) -> bool:
    """By names alone, folded as file systems do that know no case."""
    folded = [unicodedata.normalize("NFKC", part).casefold() for part in parts]
    return (system and folded[:1] != [] and folded[0] in _SYSTEM) or any(map(_PRIVATE.match, folded))


def _is_same(status: os.stat_result, path: Path) -> bool:
    """The directory itself, by whatever name it is reached."""
    try:
        other = path.stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (other.st_dev, other.st_ino)


def _is_link(at: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _irregular(at: int, name: str, path: str) -> PathDenied:
    if _is_link(at, name):
        return PathDenied(f"path leads through a link: {path!r}")
    return PathDenied(f"path is not a regular file: {path!r}")


def _refusal(exc: OSError, at: int, name: str, path: str) -> PathDenied | PathMissing:
    if exc.errno in (errno.EACCES, errno.EPERM):
        return PathDenied(f"the relay's user may not read {path!r}")
    if exc.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(at, name):
        return PathDenied(f"path leads through a link: {path!r}")
    return PathMissing(f"path does not exist: {path!r}")


def _secret(path: str) -> PathDenied:
    return PathDenied(f"path is in a protected credential/system location: {path!r}")
