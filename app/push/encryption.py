"""Web Push message encryption (RFC 8291 over RFC 8188, aes128gcm), one record: only the subscriber can read it."""

from __future__ import annotations

import os

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

RECORD = 4096  # bytes; every service takes as much
MAX_PLAIN = RECORD - 16 - 1 - 86  # the tag, the delimiter and the header in front (RFC 8291, section 4)


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """The uncompressed point, 65 bytes."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def public_key(point: bytes) -> ec.EllipticCurvePublicKey:
    """Raises ValueError for what is no point of P-256."""
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)


def encrypt(plain: bytes, point: bytes, secret: bytes) -> bytes:
    """For the subscriber with this public key (`p256dh`) and this authentication secret (`auth`)."""
    salt, ours = os.urandom(16), ec.generate_private_key(ec.SECP256R1())
    key, nonce = _derive(ours, public_key(point), secret, salt, public_bytes(ours.public_key()), point)
    sealed = AESGCM(key).encrypt(nonce, plain + b"\x02", None)
    sender = public_bytes(ours.public_key())
    return salt + RECORD.to_bytes(4, "big") + bytes([len(sender)]) + sender + sealed


def _derive(
    ours: ec.EllipticCurvePrivateKey, theirs: ec.EllipticCurvePublicKey, secret: bytes, salt: bytes,
    sender: bytes, receiver: bytes,
) -> tuple[bytes, bytes]:  # fmt: skip
    shared = ours.exchange(ec.ECDH(), theirs)
    material = _hkdf(secret, b"WebPush: info\0" + receiver + sender, 32, shared)
    key = _hkdf(salt, b"Content-Encoding: aes128gcm\0", 16, material)
    return key, _hkdf(salt, b"Content-Encoding: nonce\0", 12, material)


def _hkdf(salt: bytes, info: bytes, length: int, material: bytes) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(material)
