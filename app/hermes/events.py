"""What an SSE stream of Hermes brings, read."""

from __future__ import annotations

import orjson

from app.hermes.upstream import Event
from app.wire.depth import is_too_deep
from app.wire.sse import SseEvent


def read(event: SseEvent) -> Event:
    """Runs for every event of a stream."""
    name, data = event
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        return ("done", {}) if data == b"[DONE]" else (name, None)
    return (name, None) if type(body) is not dict or is_too_deep(body, len(data)) else (name, body)
