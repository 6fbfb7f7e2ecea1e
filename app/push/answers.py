"""What each answer of a provider means for us. The operator's page is made from these tables (`deploy/push.md`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from math import isnan
from typing import TypeAlias

from app.push.provider import Outcome, Verdict

MAX_RETRY_AFTER_S = 86400.0  # whoever asks for more is asked again once a day
MAX_DETAIL = 200  # characters, counted once secrets are out of it: half of one would not be found


@dataclass(frozen=True, slots=True)
class Meaning:
    """`what` completes the sentence "the answer means that …"."""

    verdict: Verdict
    code: str
    what: str


# By status, by its class ("4xx"), or by a name: of an error in the body, or of what kept an answer from coming.
Table: TypeAlias = Mapping[int | str, Meaning]

COMMON: Table = {
    "2xx": Meaning(Verdict.SENT, "accepted", "the push was taken"),
    "3xx": Meaning(Verdict.BLOCKED, "redirected", "the service has moved, or is none; no redirect is followed"),
    400: Meaning(Verdict.DROPPED, "rejected", "this push is not understood"),
    401: Meaning(Verdict.BLOCKED, "auth_refused", "our credentials are not accepted"),
    403: Meaning(Verdict.BLOCKED, "auth_refused", "our credentials do not open this"),
    404: Meaning(Verdict.GONE, "gone", "the subscription is unknown there"),
    408: Meaning(Verdict.LATER, "timeout", "the service waited in vain"),
    410: Meaning(Verdict.GONE, "gone", "the subscription has ended"),
    413: Meaning(Verdict.SHRINK, "too_big", "the push is too long"),
    425: Meaning(Verdict.LATER, "busy", "too early"),
    429: Meaning(Verdict.LATER, "rate_limited", "we send too much; Retry-After is kept"),
    "4xx": Meaning(Verdict.DROPPED, "rejected", "this push is not accepted"),
    "5xx": Meaning(Verdict.LATER, "service_failed", "the service has trouble; Retry-After is kept"),
    "timeout": Meaning(Verdict.LATER, "timeout", "no answer within 10 s"),
    "name_unknown": Meaning(Verdict.LATER, "name_unknown", "the host name has no address"),
    "refused": Meaning(Verdict.LATER, "connection_refused", "nothing listens there"),
    "unreachable": Meaning(Verdict.LATER, "unreachable", "there is no way to that address"),
    "tls": Meaning(Verdict.BLOCKED, "tls_failed", "its certificate is not trusted, or it speaks no TLS"),
    "broken": Meaning(Verdict.LATER, "connection_broken", "the connection broke before an answer"),
    "address_refused": Meaning(
        Verdict.BLOCKED, "address_refused", "the address is private or special, and not in TALARIA_PUSH_ALLOW"
    ),
    "answer_too_big": Meaning(Verdict.DROPPED, "answer_too_big", "what answers there is no push service"),
}


def meaning(key: int | str, own: Table) -> Meaning:
    """The provider's own word first, then the common one; the exact status before its class."""
    keys: list[int | str] = [key] if isinstance(key, str) else [key, f"{key // 100}xx"]
    for one in keys:
        for table in (own, COMMON):
            if one in table:
                return table[one]
    return Meaning(Verdict.DROPPED, "rejected", "the answer makes no sense")


def outcome(
    key: int | str, own: Table, *, detail: str = "", status: int | None = None, retry_after: float | None = None,
    stage: str = "answered",
) -> Outcome:  # fmt: skip
    found = meaning(key, own)
    return Outcome(
        found.verdict, found.code, detail or found.what, status,
        retry_after if found.verdict is Verdict.LATER else None, stage,
    )  # fmt: skip


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds from now; a number or a date (RFC 9110)."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            at: datetime = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = at.timestamp() - now
    return None if isnan(seconds) else min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
