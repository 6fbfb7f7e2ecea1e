"""What is kept of an ask. The same ask is kept more than once: each frame has an id of its own, made from the ask's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson

from app.approvals.ask import Json
from app.db import Tx
from app.delivery.keep import Bell, keep
from app.outbox import store as outbox

ROOM = 1024 * 1024  # bytes of all asks in one answer: a frame has at most 4 MiB, and the rest of it is not small
ASKED, OPENED, REMINDER, CLOSED = "", ".open", ".reminder", ".closed"  # what follows the id of the ask

Change = Callable[[Tx, str], bool]


def keep_request(tx: Tx, bell: Bell, id: str, payload: Json, now: float, part: str = ASKED) -> None:
    """As it was asked, opened or reminded of. One that waits can wait: it wakes when it can be answered."""
    kind, type_ = ("approval", "approval.request") if "approval_id" in payload else ("question", "question.ask")
    _hush(tx, id)
    keep(
        tx, bell, None, id=id + part, channel="chat", type=type_, kind=kind, payload=payload, now=now,
        wakes=payload.get("state") != "waiting",
    )  # fmt: skip


def keep_outcome(tx: Tx, bell: Bell, id: str, payload: Json, now: float) -> None:
    """Wakes nobody, and neither does the request any more."""
    kind, type_ = ("approval", "approval.resolved") if "approval_id" in payload else ("question", "question.closed")
    _hush(tx, id)
    keep(
        tx, bell, None, id=id + CLOSED, channel="chat", type=type_, kind=kind, payload=payload, now=now, wakes=False
    )  # fmt: skip


def _hush(tx: Tx, id: str) -> None:
    outbox.hush(tx, [id + part for part in (ASKED, OPENED, REMINDER)])


def fitting(payloads: Sequence[Json]) -> list[Json]:
    """The oldest that have room in one frame; the others are in the mailbox."""
    shown: list[Json] = []
    size = 0
    for payload in payloads:
        size += len(orjson.dumps(payload))
        if size > ROOM:
            break
        shown.append(payload)
    return shown
