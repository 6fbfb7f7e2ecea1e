"""Pairing codes: short enough to type, so they live for minutes and are guessed at a limited rate.

They are stored as HMAC-SHA-256 under a key of the data directory. A plain or slow hash would not do: eight characters
are 41 bits, which whoever reads the database alone (a backup, a copy) would try in seconds to hours; without the key
file there is nothing to try. The key is not in the database for the same reason.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from pathlib import Path
from typing import Self

from app.errors import Misconfigured
from app.pairing.errors import PairingCodeInvalid
from app.sessions.files import read_or_make

FILE = "pairing-key"
ALPHABET = string.ascii_uppercase + string.digits
LENGTH = 8
PEER_LENGTH = 6  # what hermes-relay's clients take: 31 bits, which the limits on guessing have to make up for
_CODE = re.compile(r"[A-Z0-9]{6,16}", re.ASCII)
_IGNORED = str.maketrans("", "", " -")


def new_code(length: int = LENGTH) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def normalise(text: str) -> str:
    """As people type it: any case, spaces and dashes anywhere. Raises PairingCodeInvalid."""
    code = text.translate(_IGNORED)
    # Only ASCII letters are folded: other scripts have letters whose upper case is ASCII.
    code = code.upper() if code.isascii() else ""
    if not _CODE.fullmatch(code):
        raise PairingCodeInvalid()
    return code


class CodeHash:
    """Turns a normalised code into what is stored."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def load(cls, data_dir: Path) -> Self:
        """Makes the key on first start. Raises Misconfigured for a file that holds none."""
        path = data_dir / FILE
        content = read_or_make(path, lambda: secrets.token_hex(32).encode() + b"\n").strip()
        if not re.fullmatch(rb"[0-9a-f]{64}", content):
            raise Misconfigured(f"{path} holds no key: delete it to get a new one (open pairing codes end with it)")
        return cls(bytes.fromhex(content.decode()))

    def __call__(self, code: str) -> str:
        return hmac.new(self._key, code.encode("ascii"), hashlib.sha256).hexdigest()
