"""Signed assertions (RFC 7515, compact): few enough lines to need no library beside `cryptography`.

google-auth would bring a second, blocking HTTP client for the same RS256 assertion.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256


def b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_b64url(text: str) -> bytes:
    """Raises ValueError for anything else. Padding is optional."""
    return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)


def signed(claims: Mapping[str, Any], key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, **header: str) -> str:
    """ES256 or RS256, as the key is."""
    is_ec = isinstance(key, ec.EllipticCurvePrivateKey)
    head = {"typ": "JWT", "alg": "ES256" if is_ec else "RS256"} | header
    said = f"{b64url(orjson.dumps(head))}.{b64url(orjson.dumps(dict(claims)))}"
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(said.encode(), padding.PKCS1v15(), SHA256())
    else:
        r, s = decode_dss_signature(key.sign(said.encode(), ec.ECDSA(SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{said}.{b64url(signature)}"
