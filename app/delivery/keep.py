"""Keep a frame for devices until they acknowledge it, and ring their pumps once it is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from app.db import Tx
from app.outbox import store

Bell = Callable[[Iterable[str]], None]


def keep(
    tx: Tx, bell: Bell, devices: Sequence[str] | None, *,
    id: str, channel: str, type: str, kind: str, payload: Mapping[str, Any], now: float,
) -> dict[str, int]:  # fmt: skip
    """Part of the caller's work. `devices` None = every device that acknowledges. Returns device → seq."""
    chosen = store.listeners(tx) if devices is None else devices
    body = orjson.dumps(payload)
    numbers = store.append(tx, chosen, id=id, channel=channel, type=type, kind=kind, body=body, now=now)
    tx.after_commit(lambda: bell(numbers))
    return numbers
