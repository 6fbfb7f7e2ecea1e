"""The operator: whoever can read `operator-token` in the data directory. No address and no login stands in for it."""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path
from typing import Self

from app.errors import Misconfigured
from app.sessions.files import read_or_make

FILE = "operator-token"
MIN_LENGTH = 32  # characters; ours have 54


class OperatorToken:
    """The token in force."""

    def __init__(self, token: str) -> None:
        self._token = token

    @classmethod
    def load(cls, data_dir: Path) -> Self:
        """Made on first use. Raises Misconfigured for a file that holds no token."""
        path = data_dir / FILE
        content = read_or_make(path, lambda: f"talaria-op-{secrets.token_urlsafe(32)}\n".encode())
        try:
            token = content.decode("ascii").strip()
        except UnicodeDecodeError:
            token = ""
        if len(token) < MIN_LENGTH or not token.isprintable() or " " in token:
            raise Misconfigured(
                f"{path} holds no token (one line of {MIN_LENGTH} characters or more): delete it to get a new one"
            )
        return cls(token)

    def read(self) -> str:
        """For those who speak as the operator on this host."""
        return self._token

    def matches(self, token: str) -> bool:
        """In constant time."""
        return hmac.compare_digest(self._token.encode(), token.encode("utf-8", "surrogatepass"))
