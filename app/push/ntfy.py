"""ntfy: a topic per device on the operator's server. Whoever knows the topic reads it, so its name is random."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from app.push.answers import Meaning, Table
from app.push.calls import Answer, post
from app.push.errors import TargetInvalid
from app.push.notice import Notice
from app.push.provider import Outcome, Target, Verdict

ANSWERS: Table = {
    400: Meaning(Verdict.DROPPED, "rejected", "the server does not take this message"),
    401: Meaning(Verdict.BLOCKED, "auth_refused", "TALARIA_NTFY_TOKEN is wrong or missing"),
    403: Meaning(Verdict.BLOCKED, "auth_refused", "TALARIA_NTFY_TOKEN may not write to this topic"),
    404: Meaning(Verdict.BLOCKED, "not_found", "no ntfy server is at TALARIA_NTFY_URL"),
    410: Meaning(Verdict.BLOCKED, "not_found", "no ntfy server is at TALARIA_NTFY_URL any more"),
    429: Meaning(Verdict.LATER, "rate_limited", "too many messages, or the day's quota is used up (then: an hour)"),
    507: Meaning(Verdict.LATER, "no_space", "the server has no space left"),
}
QUOTA = 42908  # ntfy's own code: the messages of the day are used up
QUOTA_PAUSE_S = 3600.0


class Ntfy:
    names: tuple[str, ...] = ("ntfy",)

    def __init__(self, client: httpx.AsyncClient, url: str, token: str | None, click: str | None) -> None:
        """`click` is what opens when the notification is tapped."""
        self._client, self._url, self._token, self._click = client, url.rstrip("/"), token, click

    def check(self, endpoint: str | None, keys: Mapping[str, str]) -> str:
        """Topics are made here: one that a device names could be anybody's."""
        if endpoint is not None:
            raise TargetInvalid("the relay makes the topic; register ntfy without an endpoint")
        return f"talaria-{secrets.token_urlsafe(24)}"

    def public(self, target: Target) -> dict[str, str]:
        return {"server": self._url, "topic": target.endpoint, "url": f"{self._url}/{target.endpoint}"}

    async def send(self, target: Target, notice: Notice, now: float) -> Outcome:
        """As JSON to the root: headers could hold no umlaut, and a topic in a path ends up in logs on the way."""
        message: dict[str, Any] = {
            "topic": target.endpoint, "title": notice.title or "Talaria", "message": notice.text or notice.said,
            "priority": 4 if notice.urgent else 3,
            # Replaces what was shown under the same id without a sound: right for the same burst sent twice, and
            # wrong for the next one, so it is not the collapse key.
            "sequence_id": notice.burst,
        }  # fmt: skip
        if self._click:
            message["click"] = self._click
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        answer = await post(self._client, self._url, now, content=orjson.dumps(message), headers=headers, own=ANSWERS)
        if not isinstance(answer, Answer):
            return answer
        said = answer.json()
        if said.get("code") == QUOTA and answer.retry_after is None:
            answer = Answer(answer.status, answer.body, QUOTA_PAUSE_S)
        return answer.outcome(ANSWERS, detail=str(said["error"]) if "error" in said else None)
