"""What a push says. By default no more than that there is something, so that no third party learns what."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from app.outbox.kinds import KINDS
from app.outbox.wakes import Unseen

Content = Literal["none", "title", "full"]
MAX_TEXT = 1500  # bytes of a message's text: with all around it below 3,000, and every provider takes that
MAX_TITLE = 250
ASKING = ("approval", "question")
DAY_S = 86400
MAX_TTL_S = 28 * DAY_S  # what Web Push services and FCM take


@dataclass(frozen=True, slots=True)
class Manner:
    """How a kind is said. `ttl_s`: after that it is not worth a sound any more."""

    one: str
    many: str
    urgent: bool
    ttl_s: int


MANNERS = {
    "message": Manner("New message", "{n} new messages", True, MAX_TTL_S),
    "cron": Manner("A scheduled task has reported", "{n} reports of scheduled tasks", False, MAX_TTL_S),
    "turn": Manner("Your agent has finished", "{n} turns of your agent have finished", True, MAX_TTL_S),
    "approval": Manner("Your approval is needed", "{n} approvals are needed", True, 600),
    "question": Manner("There is a question for you", "There are {n} questions for you", True, DAY_S),
    "test": Manner("Push works: this is the test you asked for", "", True, 600),
    "wake": Manner("Your agent wants to use this phone", "", True, 60),
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One push about everything a device has not seen. `title` and `text` are None below their content level."""

    kind: str  # of the frame that it names
    collapse: str  # a newer push of the same group replaces an older one that was not shown yet
    said: str  # content-free
    count: int
    head: int  # the highest number it is about
    relay_id: str
    burst: str  # the same for a push that is sent twice because nobody could say whether the first went out
    ttl_s: int
    urgent: bool
    title: str | None = None
    text: str | None = None

    def shrunk(self) -> Notice | None:
        """With less in it; None if there is nothing left to leave out."""
        if self.text is not None:
            return replace(self, text=None)
        return replace(self, title=None) if self.title is not None else None

    def payload(self) -> dict[str, Any]:
        """For clients that show it themselves."""
        said = {
            "kind": self.kind, "count": self.count, "relay_id": self.relay_id, "head": self.head,
            "collapse": self.collapse, "title": self.title, "body": self.text or self.said,
        }  # fmt: skip
        return {name: value for name, value in said.items() if value is not None}


def chief(frames: Sequence[Unseen]) -> Unseen:
    """The one to name: the newest, but what waits for an answer before what only tells something."""
    return next((frame for frame in frames if frame.kind in ASKING), frames[0])


def of_frames(frames: Sequence[Unseen], body: bytes | None, content: Content, relay_id: str, now: float) -> Notice:
    """`frames` newest first, at least one; `body` is the payload of their chief, where any of it may be said."""
    newest, named = frames[0], chief(frames)
    manner = MANNERS[named.kind]
    same = sum(frame.kind == named.kind for frame in frames)
    said = manner.one if same == 1 else manner.many.format(n=same)
    if others := len(frames) - same:
        said += f", and {others} more"
    shown: dict[str, Any] = orjson.loads(body) if body and content != "none" else {}
    ends = named.expires_at
    return Notice(
        kind=named.kind, collapse=KINDS[named.kind].collapse, said=said, count=len(frames), head=newest.seq,
        relay_id=relay_id, burst=_burst(f"{relay_id}/{newest.id}"), urgent=manner.urgent,
        ttl_s=manner.ttl_s if ends is None else max(1, min(manner.ttl_s, int(ends - now))),
        title=_cut(shown.get("title"), MAX_TITLE),
        text=_cut(shown.get("text") or shown.get("summary"), MAX_TEXT) if content == "full" else None,
    )  # fmt: skip


def of_test(relay_id: str, nonce: str) -> Notice:
    return _of_no_frame("test", relay_id, nonce)


def of_wake(relay_id: str, nonce: str) -> Notice:
    return _of_no_frame("wake", relay_id, nonce)


def _of_no_frame(kind: str, relay_id: str, nonce: str) -> Notice:
    """Whatever waits in the mailbox is still to be pushed about."""
    manner = MANNERS[kind]
    return Notice(
        kind=kind, collapse=kind, said=manner.one, count=1, head=0, relay_id=relay_id,
        burst=_burst(f"{relay_id}/{nonce}"), ttl_s=manner.ttl_s, urgent=manner.urgent,
    )  # fmt: skip


def _burst(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _cut(value: object, limit: int) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return None
    raw = value.strip().encode()
    return raw.decode() if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "…"
