"""Keep a frame for devices until they acknowledge it, and ring their pumps once it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from app.db import Tx
from app.outbox import store

MAX_BODY = 256 * 1024  # bytes of a kept payload

Bell = Callable[[Iterable[str]], None]


def keep(
    tx: Tx, bell: Bell, devices: Sequence[str] | None, *,
    id: str, channel: str, type: str, kind: str, payload: Mapping[str, Any], now: float,
    wakes: bool = True, sender: str | None = None, expires_at: float | None = None,
) -> dict[str, int]:  # fmt: skip
    """Part of the caller's work. `devices` None = every device that this kind is kept for. Returns device → seq."""
    chosen = list(store.listening(tx, kind)) if devices is None else devices
    numbers = store.append(
        tx, chosen, id=id, channel=channel, type=type, kind=kind, body=orjson.dumps(payload), now=now,
        wakes=wakes, sender=sender, expires_at=expires_at,
    )  # fmt: skip
    tx.after_commit(lambda: bell(numbers))
    return numbers
