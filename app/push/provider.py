"""What the dispatcher and a provider say to each other. A provider is one file that implements PushProvider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from app.push.notice import Notice


class Verdict(StrEnum):
    """What follows from an answer, whoever gave it."""

    SENT = "sent"  # the provider took it
    LATER = "later"  # trouble that passes: again after a while
    BLOCKED = "blocked"  # somebody has to change something, here or there: looked at again every hour
    DROPPED = "dropped"  # this push is not accepted, and would not be the next time; the target stays
    SHRINK = "shrink"  # too long: again at once with less
    GONE = "gone"  # the target will never work again: it is retired


@dataclass(frozen=True, slots=True)
class Outcome:
    """`code` is stable and short, `detail` for people; neither holds an address, a token or a topic.

    `retry_after` in seconds, where the provider asked for it. `stage` is how far a failed request came.
    """

    verdict: Verdict
    code: str
    detail: str = ""
    status: int | None = None  # of HTTP
    retry_after: float | None = None
    stage: str = "answered"  # named, connected, tls or answered: the first that failed, answered otherwise


@dataclass(frozen=True, slots=True)
class Target:
    """Where one device can be reached. `endpoint` is a URL, a topic or a token: a secret in each case."""

    target_id: str
    device_id: str
    provider: str
    endpoint: str
    keys: Mapping[str, str]
    settled: int = 0  # the last number of the mailbox that needs no push here any more
    not_before: float | None = None  # when the provider takes the next one


class PushProvider(Protocol):
    """`names` are what targets call it by."""

    names: tuple[str, ...]

    def check(self, endpoint: str | None, keys: Mapping[str, str]) -> str:
        """The endpoint to store for a registration. Raises TargetInvalid, AddressRefused."""

    def public(self, target: Target) -> dict[str, str]:
        """What only the target's own device is told about it."""

    async def send(self, target: Target, notice: Notice, now: float) -> Outcome:
        """One request. Never raises for what the other side does."""
