"""Who speaks from this host: the operator, and the agent's own tools, each by a token in the data directory.

Whoever can read the file is the operator, or the link. No address and no login stands in for that.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from pathlib import Path
from typing import ClassVar, Self

from app.errors import Misconfigured
from app.logs import register_secret
from app.sessions import files

MIN_LENGTH = 32  # characters; ours have 54 and more

log = logging.getLogger("talaria.sessions")


class HostToken:
    """The token in force: what the file holds, also when it is exchanged while the relay runs."""

    FILE: ClassVar[str]
    PREFIX: ClassVar[str]  # so that a token found somewhere says what it opens

    def __init__(self, path: Path, token: str) -> None:
        self._path = path
        self._token = token
        self._seen = _version(path)
        register_secret(token)

    @classmethod
    def load(cls, data_dir: Path) -> Self:
        """Made on first use. Raises Misconfigured for a file that holds no token."""
        path = data_dir / cls.FILE
        return cls(path, _parse(path, files.read_or_make(path, cls._new)))

    @classmethod
    def rotate(cls, data_dir: Path) -> str:
        """A new token in place of the old one, which a running relay refuses from then on. Raises Misconfigured."""
        content = cls._new()
        files.replace(data_dir / cls.FILE, content)
        return content.decode().strip()

    @classmethod
    def _new(cls) -> bytes:
        return f"{cls.PREFIX}{secrets.token_urlsafe(32)}\n".encode()

    def read(self) -> str:
        """For those who speak with it on this host."""
        return self._token

    def matches(self, token: str) -> bool:
        """In constant time."""
        self._follow()
        return hmac.compare_digest(self._token.encode(), token.encode("utf-8", "surrogatepass"))

    def _follow(self) -> None:
        """A file that is gone or spoilt changes nothing: nobody must be locked out by an accident."""
        version = _version(self._path)
        if version in (None, self._seen):
            return
        self._seen = version
        try:
            self._token = _parse(self._path, self._path.read_bytes())
        except (OSError, Misconfigured) as exc:
            log.warning("a token could not be read again; the old one stays", extra={"reason": str(exc)})
        else:
            register_secret(self._token)
            log.info("a token was exchanged", extra={"file": self.FILE})


class OperatorToken(HostToken):
    """May do everything."""

    FILE, PREFIX = "operator-token", "talaria-op-"


class LinkToken(HostToken):
    """For the agent and its tools: messages, and what devices are asked for; no pairing and no sessions."""

    FILE, PREFIX = "link-token", "talaria-link-"


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
