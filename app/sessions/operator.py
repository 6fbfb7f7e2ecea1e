"""The operator: whoever can read `operator-token` in the data directory. No address and no login stands in for it."""

from __future__ import annotations

import hmac
import logging
import secrets
from pathlib import Path
from typing import Self

from app.errors import Misconfigured
from app.logs import register_secret
from app.sessions import files

FILE = "operator-token"
MIN_LENGTH = 32  # characters; ours have 54

log = logging.getLogger("talaria.sessions")


class OperatorToken:
    """The token in force: what the file holds, also when it is exchanged while the relay runs."""

    def __init__(self, path: Path, token: str) -> None:
        self._path = path
        self._token = token
        self._seen = _version(path)
        register_secret(token)

    @classmethod
    def load(cls, data_dir: Path) -> Self:
        """Made on first use. Raises Misconfigured for a file that holds no token."""
        path = data_dir / FILE
        return cls(path, _parse(path, files.read_or_make(path, _new)))

    def read(self) -> str:
        """For those who speak as the operator on this host."""
        return self._token

    def matches(self, token: str) -> bool:
        """In constant time."""
        self._follow()
        return hmac.compare_digest(self._token.encode(), token.encode("utf-8", "surrogatepass"))

    def _follow(self) -> None:
        """A file that is gone or spoilt changes nothing: the operator must not be locked out by an accident."""
        version = _version(self._path)
        if version in (None, self._seen):
            return
        self._seen = version
        try:
            self._token = _parse(self._path, self._path.read_bytes())
        except (OSError, Misconfigured) as exc:
            log.warning("the operator token could not be read again; the old one stays", extra={"reason": str(exc)})
        else:
            register_secret(self._token)
            log.info("the operator token was exchanged")


def rotate(data_dir: Path) -> str:
    """A new token in place of the old one, which a running relay refuses from then on. Raises Misconfigured."""
    content = _new()
    files.replace(data_dir / FILE, content)
    return content.decode().strip()


def _new() -> bytes:
    return f"talaria-op-{secrets.token_urlsafe(32)}\n".encode()


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _parse(path: Path, content: bytes) -> str:
    try:
        token = content.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if len(token) < MIN_LENGTH or not token.isprintable() or " " in token:
        raise Misconfigured(
            f"{path} holds no token (one line of {MIN_LENGTH} characters or more): delete it to get a new one"
        )
    return token
