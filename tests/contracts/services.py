"""Push services that check what real ones check, on a real server of the test, and refuse as they are told to."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.types import Receive, Scope, Send

from app.push.signing import b64url, from_b64url

Headers = dict[str, str]


@dataclass
class Reply:
    status: int
    body: bytes = b""
    headers: Headers = field(default_factory=dict)


class Refused(Exception):
    """What a real service would not take. The reply says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Service:
    """`replies` are used up first, one per request; then every request is checked. `taken` is what was accepted."""

    ok = 201

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.replies: list[Reply] = []
        self.requests = 0
        self.asked = asyncio.Semaphore(0)  # acquire it to wait for the next request
        self.hang: asyncio.Event | None = None  # set to an event: no answer before it is set
        self.cut = False  # break off in the middle of the answer
        self.limit = 4096  # bytes of a request

    def check(self, path: str, headers: Headers, body: bytes) -> dict[str, Any]:
        """What the subscriber would see. Raises Refused."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.requests += 1
        self.asked.release()
        if self.hang is not None:
            await self.hang.wait()
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        reply = self.answer(scope["method"], scope["raw_path"].decode(), headers, body)
        if self.cut:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99")]})
            raise ConnectionAbortedError
        pairs = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": pairs})
        await send({"type": "http.response.body", "body": reply.body})

    def answer(self, method: str, path: str, headers: Headers, body: bytes) -> Reply:
        if self.replies:
            return self.replies.pop(0)
        try:
            if method != "POST":
                raise Refused(405, "not a POST")
            if len(body) > self.limit:
                raise Refused(413, "too long")
            self.taken.append(self.check(path, headers, body))
        except Refused as refused:
            return Reply(refused.status, str(refused).encode())
        except Exception as exc:  # what the relay sent makes no sense at all
            return Reply(400, repr(exc).encode())
        return Reply(self.ok)


# Web Push


def public_point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def decrypt(body: bytes, key: ec.EllipticCurvePrivateKey, secret: bytes) -> bytes:
    """RFC 8291 as a browser does it, written apart from the relay's side."""
    salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
    sender, sealed = body[21 : 21 + length], body[21 + length :]
    assert len(sealed) <= size
    shared = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
    extracted = hmac.digest(secret, shared, hashlib.sha256)
    info = b"WebPush: info\0" + public_point(key) + sender
    material = hmac.digest(extracted, info + b"\x01", hashlib.sha256)
    extracted = hmac.digest(salt, material, hashlib.sha256)
    content = hmac.digest(extracted, b"Content-Encoding: aes128gcm\0\x01", hashlib.sha256)[:16]
    nonce = hmac.digest(extracted, b"Content-Encoding: nonce\0\x01", hashlib.sha256)[:12]
    padded = AESGCM(content).decrypt(nonce, sealed, None).rstrip(b"\0")
    assert padded.endswith(b"\x02")
    return padded[:-1]


class WebPushService(Service):
    """A browser's push service and, behind it, the browser. Knows the key that the subscription was made for."""

    def __init__(self) -> None:
        super().__init__()
        self.origin, self.application_key = "", ""
        self.browser, self.secret = ec.generate_private_key(ec.SECP256R1()), b"sixteen bytes ok"

    def keys(self) -> dict[str, str]:
        return {"p256dh": b64url(public_point(self.browser)), "auth": b64url(self.secret)}

    def check(self, path: str, headers: Headers, body: bytes) -> dict[str, Any]:
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        if scheme != "vapid":
            raise Refused(401, "no VAPID")
        parameters = dict(part.strip().split("=", 1) for part in rest.split(","))
        if parameters["k"] != self.application_key:
            raise Refused(403, "subscribed with another key")
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), from_b64url(parameters["k"]))
        claims = jwt.decode(
            parameters["t"], key, algorithms=["ES256"], audience=self.origin, options={"require": ["aud", "exp", "sub"]}
        )
        if claims["exp"] > time.time() + 86400 or not claims["sub"].startswith(("mailto:", "https://")):
            raise Refused(400, "claims")
        if headers.get("content-encoding") != "aes128gcm" or not headers.get("ttl", "").isdigit():
            raise Refused(400, "headers")
        if headers.get("urgency") not in ("very-low", "low", "normal", "high"):
            raise Refused(400, "urgency")
        topic = headers.get("topic", "")
        if len(topic) > 32 or not topic.replace("-", "").replace("_", "").isalnum():
            raise Refused(400, "topic")
        return json.loads(decrypt(body, self.browser, self.secret)) | {
            "path": path, "ttl": int(headers["ttl"]), "urgent": headers["urgency"] == "high", "topic": topic,
            "sub": claims["sub"],
        }  # fmt: skip


# ntfy


class NtfyService(Service):
    ok = 200
    token = "tk_of_the_test_server_0123456789"

    def check(self, path: str, headers: Headers, body: bytes) -> dict[str, Any]:
        if headers.get("authorization") != f"Bearer {self.token}":
            raise Refused(403, json.dumps({"code": 40301, "http": 403, "error": "forbidden"}))
        said = json.loads(body)
        if (
            path != "/"
            or not 0 < len(said["topic"]) <= 64
            or not said["topic"].replace("-", "").replace("_", "").isalnum()
        ):
            raise Refused(400, json.dumps({"code": 40009, "http": 400, "error": "invalid topic"}))
        if not 1 <= said["priority"] <= 5 or not said["message"] or len(said["sequence_id"]) > 64:
            raise Refused(400, json.dumps({"code": 40007, "http": 400, "error": "invalid message"}))
        return dict(said)


# Firebase Cloud Messaging


@cache
def _account_key() -> rsa.RSAPrivateKey:
    """Made once: that takes longer than everything else here."""
    return rsa.generate_private_key(65537, 2048)


class FcmService(Service):
    """Google's token endpoint, and FCM's."""

    ok = 200
    project, email = "test-project", "relay@test-project.iam.gserviceaccount.com"

    def __init__(self) -> None:
        super().__init__()
        self.key = _account_key()
        self.origin, self.access, self.assertions = "", "", 0
        self.token_replies: list[Reply] = []

    def answer(self, method: str, path: str, headers: Headers, body: bytes) -> Reply:
        return self._token(body) if path == "/token" else super().answer(method, path, headers, body)

    def _token(self, body: bytes) -> Reply:
        self.assertions += 1
        if self.token_replies:
            return self.token_replies.pop(0)
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        claims = jwt.decode(
            form["assertion"], self.key.public_key(), algorithms=["RS256"], audience=f"{self.origin}/token",
            options={"require": ["iss", "scope", "aud", "iat", "exp"]},
        )  # fmt: skip
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assert jwt.get_unverified_header(form["assertion"])["kid"] == "key-1"
        assert claims["iss"] == self.email
        assert claims["scope"] == "https://www.googleapis.com/auth/firebase.messaging"
        assert 0 < claims["exp"] - claims["iat"] <= 3600
        self.access = f"ya29.{self.assertions}"
        return Reply(200, json.dumps({"access_token": self.access, "expires_in": 3599}).encode())

    def check(self, path: str, headers: Headers, body: bytes) -> dict[str, Any]:
        if path != f"/v1/projects/{self.project}/messages:send":
            raise Refused(404, "no such project")
        if headers.get("authorization") != f"Bearer {self.access}":
            raise Refused(401, "access token")
        message = json.loads(body)["message"]
        android = message["android"]
        assert message.keys() == {"token", "data", "android"}
        assert all(isinstance(value, str) for value in message["data"].values())
        assert not message["data"].keys() & {"from", "message_type", "notification"}
        assert android["priority"] in ("HIGH", "NORMAL")
        return message["data"] | {
            "token": message["token"], "ttl": int(android["ttl"].removesuffix("s")), "topic": android["collapse_key"],
            "urgent": android["priority"] == "HIGH",
        }  # fmt: skip


def fcm_error(status: int, name: str, message: str = "", *, code: str | None = None, field: str | None = None) -> Reply:
    """As FCM writes it."""
    details: list[dict[str, Any]] = []
    if code is not None:
        details.append({"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code})
    if field is not None:
        kind = "type.googleapis.com/google.rpc.BadRequest"
        details.append({"@type": kind, "fieldViolations": [{"field": field, "description": "invalid"}]})
    error = {"code": status, "message": message, "status": name, "details": details}
    return Reply(status, json.dumps({"error": error}).encode())
