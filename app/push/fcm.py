"""Firebase Cloud Messaging, HTTP v1: for an app whose owner has a Firebase project, with its service account's key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from app.errors import Misconfigured
from app.push.answers import Meaning, Table
from app.push.calls import Answer, post
from app.push.errors import TargetInvalid
from app.push.notice import Notice
from app.push.provider import Outcome, Target, Verdict
from app.push.signing import signed

URL = "https://fcm.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
ASSERTION_S = 3600  # the longest that Google takes
EARLY_S = 60.0  # an access token is renewed this long before its end
MAX_TOKEN = 4096  # characters

ANSWERS: Table = {
    "UNREGISTERED": Meaning(Verdict.GONE, "gone", "the app was removed, or its token has expired"),
    "SENDER_ID_MISMATCH": Meaning(Verdict.GONE, "key_mismatch", "the token belongs to another Firebase project"),
    "INVALID_TOKEN": Meaning(Verdict.GONE, "invalid_token", "INVALID_ARGUMENT about the token: it is none"),
    "TOO_BIG": Meaning(Verdict.SHRINK, "too_big", "INVALID_ARGUMENT about the size"),
    "INVALID_ARGUMENT": Meaning(Verdict.DROPPED, "rejected", "this message is not understood"),
    "QUOTA_EXCEEDED": Meaning(Verdict.LATER, "rate_limited", "the quota is used up; Retry-After, else a minute"),
    "UNAVAILABLE": Meaning(Verdict.LATER, "service_failed", "the service is overloaded; Retry-After is kept"),
    "INTERNAL": Meaning(Verdict.LATER, "service_failed", "the service has failed"),
    "THIRD_PARTY_AUTH_ERROR": Meaning(Verdict.BLOCKED, "auth_refused", "the project lacks a key of APNs or Web Push"),
    "credentials": Meaning(Verdict.BLOCKED, "auth_refused", "Google does not accept the service account's key"),
    401: Meaning(Verdict.BLOCKED, "auth_refused", "the access token is refused, also a fresh one"),
    403: Meaning(Verdict.BLOCKED, "auth_refused", "the service account may not send in this project"),
    404: Meaning(Verdict.BLOCKED, "not_found", "the project is unknown (UNREGISTERED is the token)"),
}
QUOTA_PAUSE_S = 60.0  # what Google's documentation asks for where it says nothing in the answer


class ServiceAccount:
    """The JSON file that Google gives for a service account."""

    def __init__(self, project: str, email: str, key_id: str, key: rsa.RSAPrivateKey, token_url: str) -> None:
        self.project, self.email, self.key_id, self._key, self.token_url = project, email, key_id, key, token_url

    @classmethod
    def load(cls, path: Path) -> ServiceAccount:
        """Raises Misconfigured, which does not repeat the content."""
        try:
            said: dict[str, str] = orjson.loads(path.read_bytes())
            key = load_pem_private_key(said["private_key"].encode(), None)
            if not isinstance(key, rsa.RSAPrivateKey):
                raise ValueError
            found = said["project_id"], said["client_email"], said.get("private_key_id", ""), key, said["token_uri"]
        except OSError as exc:
            raise Misconfigured(f"TALARIA_FCM_CREDENTIALS: {path} cannot be read: {exc.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, UnsupportedAlgorithm):
            raise Misconfigured(f"TALARIA_FCM_CREDENTIALS: {path} is no key file of a service account") from None
        return cls(*found)

    def assertion(self, now: float) -> str:
        claims = {
            "iss": self.email, "scope": SCOPE, "aud": self.token_url, "iat": int(now), "exp": int(now) + ASSERTION_S,
        }  # fmt: skip
        return signed(claims, self._key, kid=self.key_id)


class Fcm:
    names: tuple[str, ...] = ("fcm",)

    def __init__(self, client: httpx.AsyncClient, account: ServiceAccount, url: str = URL) -> None:
        self._client, self._account = client, account
        self._url = f"{url}/v1/projects/{account.project}/messages:send"
        self._token, self._token_ends = "", 0.0
        self._renewing = asyncio.Lock()

    def check(self, endpoint: str | None, keys: Mapping[str, str]) -> str:
        if not endpoint or len(endpoint) > MAX_TOKEN or not endpoint.isascii() or not endpoint.isprintable():
            raise TargetInvalid("endpoint must be the app's registration token")
        return endpoint

    def public(self, target: Target) -> dict[str, str]:
        return {}

    async def send(self, target: Target, notice: Notice, now: float) -> Outcome:
        message = orjson.dumps({"message": _message(target, notice)})
        outcome = await self._send(message, now)
        if outcome.status == 401 and self._token:
            self._token = ""  # it may have been revoked before its time
            outcome = await self._send(message, now)
        return outcome

    async def _send(self, message: bytes, now: float) -> Outcome:
        token = await self._access(now)
        if isinstance(token, Outcome):
            return token
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        answer = await post(self._client, self._url, now, content=message, headers=headers, own=ANSWERS)
        return _judged(answer) if isinstance(answer, Answer) else answer

    async def _access(self, now: float) -> str | Outcome:
        async with self._renewing:
            if self._token and now < self._token_ends - EARLY_S:
                return self._token
            form = {
                "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": self._account.assertion(now),
            }  # fmt: skip
            answer = await post(
                self._client, self._account.token_url, now, content=urlencode(form).encode(), own=ANSWERS,
                headers={"content-type": "application/x-www-form-urlencoded"},
            )  # fmt: skip
            if not isinstance(answer, Answer):
                return answer
            said = answer.json()
            token, life = said.get("access_token"), said.get("expires_in")
            if answer.status != 200 or not isinstance(token, str) or not isinstance(life, int):
                key = "credentials" if answer.status in (200, 400, 401, 403) else answer.status
                return answer.outcome(ANSWERS, key=key, detail=str(said.get("error_description") or ""))
            self._token, self._token_ends = token, now + life
            return token


def _message(target: Target, notice: Notice) -> dict[str, Any]:
    """Data only, so that the app decides how to show it. FCM takes strings."""
    return {
        "token": target.endpoint,
        "data": {name: str(value) for name, value in notice.payload().items()},
        "android": {
            "priority": "HIGH" if notice.urgent else "NORMAL", "ttl": f"{notice.ttl_s}s",
            "collapse_key": notice.collapse,
        },
    }  # fmt: skip


def _judged(answer: Answer) -> Outcome:
    said = answer.json().get("error")
    error: dict[str, Any] = said if isinstance(said, dict) else {}
    details = [entry for entry in error.get("details") or [] if isinstance(entry, dict)]
    message = str(error.get("message") or "")
    code = next((str(entry["errorCode"]) for entry in details if "errorCode" in entry), "")
    fields = [str(v.get("field")) for entry in details for v in entry.get("fieldViolations") or []]
    key: int | str = code if code in ANSWERS else answer.status
    if answer.status == 400:
        key = "INVALID_ARGUMENT"
        if "message.token" in fields or "registration token" in message:
            key = "INVALID_TOKEN"
        elif "too big" in message:
            key = "TOO_BIG"
    if key == "QUOTA_EXCEEDED" and answer.retry_after is None:
        answer = Answer(answer.status, answer.body, QUOTA_PAUSE_S)
    return answer.outcome(ANSWERS, key=key, detail=message)
