"""What tells this relay from another: `identity.key`, an Ed25519 key that signs nothing but this.

A client that was told the fingerprint beside the code (in the QR) knows by it that the relay which it has reached is
the one that made the code. It proves something over TLS only: whoever stands in the middle of plain HTTP can pass the
question on.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from app.errors import Misconfigured
from app.sessions.errors import ChallengeInvalid
from app.sessions.files import read_or_make

FILE = "identity.key"
CONTEXT = b"talaria-identity-v1"
CHALLENGE = (16, 64)  # bytes, least and most
FINGERPRINT = 16  # bytes of the SHA-256 of the public key: no other key can be made to have them


class Identity:
    """`public` and `fingerprint` are base64url without padding."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        public = key.public_key().public_bytes_raw()
        self.public = _b64url(public)
        self.fingerprint = _b64url(hashlib.sha256(public).digest()[:FINGERPRINT])

    @classmethod
    def load(cls, data_dir: Path) -> Self:
        """Made on first start. Raises Misconfigured for a file that holds none."""
        path = data_dir / FILE
        try:
            key = load_pem_private_key(read_or_make(path, _fresh), None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise Misconfigured(
                f"{path} holds no Ed25519 key: restore it from a backup, or delete it to get a new one (links that "
                "were shown before then lead to a warning)"
            )
        return cls(key)

    def sign(self, origin: str, challenge: str) -> str:
        """Signature over context, origin and challenge, a null byte between them. Raises ChallengeInvalid."""
        return _b64url(self._key.sign(b"\0".join((CONTEXT, origin.encode("ascii"), _challenge(challenge)))))


def _challenge(text: str) -> bytes:
    least, most = CHALLENGE
    if not re.fullmatch(r"[A-Za-z0-9_-]+={0,2}", text):
        raise ChallengeInvalid()
    try:
        raw = base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except binascii.Error:
        raise ChallengeInvalid() from None
    if not least <= len(raw) <= most:
        raise ChallengeInvalid()
    return raw


def _b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _fresh() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
