"""Verdicts on tokens, for a few seconds: a reconnecting client and a page's requests bring the same one again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.clock import Clock

CACHED_S = 5.0
MAX_CACHED = 10_000  # about 1 KiB each

V = TypeVar("V")


@dataclass(slots=True)
class _Entry(Generic[V]):
    session_id: str
    verdict: V
    until: float  # monotonic


class Verdicts(Generic[V]):
    """By hash: a token is not kept in memory longer than its request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[bytes, _Entry[V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @staticmethod
    def key(token: str) -> bytes:
        return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()

    def get(self, key: bytes) -> V | None:
        entry = self._entries.get(key)
        return entry.verdict if entry is not None and entry.until > self._clock.monotonic() else None

    def put(self, key: bytes, session_id: str, verdict: V) -> None:
        now = self._clock.monotonic()
        if len(self._entries) >= MAX_CACHED:
            self._entries = {key: entry for key, entry in self._entries.items() if entry.until > now}
            if len(self._entries) >= MAX_CACHED:
                self._entries.clear()
        self._entries[key] = _Entry(session_id, verdict, now + CACHED_S)

    def drop(self, session_id: str) -> None:
        for key in [key for key, entry in self._entries.items() if entry.session_id == session_id]:
            del self._entries[key]
