"""Web Push (RFC 8030) to browsers, and to UnifiedPush distributors, which speak the same.

The message is encrypted for the subscriber, the request signed with our VAPID key (RFC 8292), which the browser was
given when it subscribed: a subscription belongs to that key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from app.errors import Misconfigured
from app.guard import check_url
from app.push.answers import Meaning, Table
from app.push.calls import Answer, post
from app.push.encryption import MAX_PLAIN, encrypt, public_bytes, public_key
from app.push.errors import TargetInvalid
from app.push.notice import Notice
from app.push.provider import Outcome, Target, Verdict
from app.push.signing import b64url, from_b64url, signed
from app.sessions.files import read_or_make

FILE = "vapid.key"
VALID_S = 12 * 3600  # of a signature; services refuse more than 24 h
MAX_ENDPOINT = 2048  # characters

ANSWERS: Table = {
    400: Meaning(Verdict.DROPPED, "rejected", "headers or encryption are not understood"),
    401: Meaning(Verdict.BLOCKED, "auth_refused", "the VAPID signature is not accepted: most often a wrong clock"),
    403: Meaning(Verdict.GONE, "key_mismatch", "the subscription belongs to another VAPID key"),
    406: Meaning(Verdict.LATER, "rate_limited", "Windows says this for 429"),
    507: Meaning(Verdict.LATER, "no_subscriber", "an ntfy server has seen no subscriber of this endpoint yet"),
}


class Vapid:
    """Our key, which says to a push service that it is us."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, subject: str) -> None:
        self._key, self._subject = key, subject
        self.public = b64url(public_bytes(key.public_key()))  # `applicationServerKey` of a subscription

    @classmethod
    def load(cls, data_dir: Path, subject: str) -> Vapid:
        """Made on first start. Raises Misconfigured."""
        path = data_dir / FILE
        try:
            key = load_pem_private_key(read_or_make(path, _fresh), None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise Misconfigured(
                f"{path} holds no P-256 key: restore it, or delete it and let every browser subscribe again"
            )
        return cls(key, subject)

    def authorization(self, endpoint: str, now: float) -> str:
        parts = urlsplit(endpoint)
        claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": int(now) + VALID_S, "sub": self._subject}
        return f"vapid t={signed(claims, self._key)}, k={self.public}"


def _fresh() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class WebPush:
    names: tuple[str, ...] = ("webpush", "unifiedpush")

    def __init__(self, client: httpx.AsyncClient, vapid: Vapid, allow: Iterable[str]) -> None:
        self._client, self.vapid, self._allow = client, vapid, tuple(allow)

    def check(self, endpoint: str | None, keys: Mapping[str, str]) -> str:
        if not endpoint or len(endpoint) > MAX_ENDPOINT or not endpoint.isascii() or not endpoint.isprintable():
            raise TargetInvalid(f"endpoint must be a URL of at most {MAX_ENDPOINT} characters")
        check_url(endpoint, self._allow)
        try:
            public_key(from_b64url(keys.get("p256dh", "")))
            secret = from_b64url(keys.get("auth", ""))
        except ValueError:
            secret = b""
        if len(secret) != 16:
            raise TargetInvalid("keys need p256dh (a P-256 point) and auth (16 bytes), both base64url")
        return endpoint

    def public(self, target: Target) -> dict[str, str]:
        return {}

    async def send(self, target: Target, notice: Notice, now: float) -> Outcome:
        plain = orjson.dumps(notice.payload())
        if len(plain) > MAX_PLAIN:
            return Outcome(Verdict.SHRINK, "too_big")
        headers = {
            "authorization": self.vapid.authorization(target.endpoint, now),
            "content-encoding": "aes128gcm", "content-type": "application/octet-stream",
            "ttl": str(notice.ttl_s), "urgency": "high" if notice.urgent else "normal", "topic": notice.collapse,
        }  # fmt: skip
        sealed = encrypt(plain, from_b64url(target.keys["p256dh"]), from_b64url(target.keys["auth"]))
        answer = await post(self._client, target.endpoint, now, content=sealed, headers=headers, own=ANSWERS)
        return answer.outcome(ANSWERS) if isinstance(answer, Answer) else answer
