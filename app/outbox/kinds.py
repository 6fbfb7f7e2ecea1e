"""The kinds of frames that are kept, and what follows from each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """`collapse` groups pushes, never frames: a newer push replaces an older one of the same group on the phone."""

    name: str
    collapse: str
    for_older: bool = False  # also for clients that only know messages


KINDS = {
    kind.name: kind
    for kind in (
        Kind("message", "messages", for_older=True),
        Kind("cron", "messages", for_older=True),
        Kind("turn", "turns"),
        Kind("approval", "approvals"),
        Kind("question", "questions"),
    )
}
