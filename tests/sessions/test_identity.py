"""The key that tells this relay from another."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app.errors import Misconfigured
from app.sessions.errors import ChallengeInvalid
from app.sessions.identity import Identity

ORIGIN = "https://home.ts.net"


def unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_it_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    first = Identity.load(tmp_path)
    assert (tmp_path / "identity.key").stat().st_mode & 0o777 == 0o600
    assert Identity.load(tmp_path).fingerprint == first.fingerprint
    assert first.fingerprint == unpadded(hashlib.sha256(raw(first.public)).digest()[:16])
    (tmp_path / "other").mkdir()
    assert Identity.load(tmp_path / "other").fingerprint != first.fingerprint


@pytest.mark.parametrize("length", [16, 17, 18, 64])
def test_what_is_signed(tmp_path: Path, length: int) -> None:
    own, challenge = Identity.load(tmp_path), bytes(range(length))
    key = Ed25519PublicKey.from_public_bytes(raw(own.public))
    signed = own.sign(ORIGIN, unpadded(challenge))
    key.verify(raw(signed), b"talaria-identity-v1\0" + ORIGIN.encode() + b"\0" + challenge)
    assert own.sign(ORIGIN, base64.urlsafe_b64encode(challenge).decode()) == signed
    with pytest.raises(InvalidSignature):
        key.verify(raw(signed), b"talaria-identity-v1\0https://other.ts.net\0" + challenge)


@pytest.mark.parametrize(
    "challenge",
    ["", unpadded(bytes(15)), unpadded(bytes(65)), "a" * 21 + "+", "a" * 25, "ä" * 30, "a" * 30 + "\n", "=" * 30],
)
def test_what_is_no_challenge(tmp_path: Path, challenge: str) -> None:
    with pytest.raises(ChallengeInvalid):
        Identity.load(tmp_path).sign(ORIGIN, challenge)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_file_that_holds_no_key_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "identity.key").write_bytes(content)
    with pytest.raises(Misconfigured, match=r"identity\.key"):
        Identity.load(tmp_path)
