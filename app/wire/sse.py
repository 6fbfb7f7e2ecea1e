"""Server-sent events, cut out of bytes as they arrive. Bytes are never decoded before an event is whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from app.errors import RelayError

MAX_EVENT = 32 * 1024 * 1024  # bytes of one event: above what any agent sends, below what could hurt
_BOM = b"\xef\xbb\xbf"

SseEvent = tuple[str, bytes]  # name, data


class EventTooLong(RelayError):
    """The stream sent an event that is longer than the relay takes."""

    code = "upstream_invalid"
    layer = "upstream"
    http_status = 502


class SseSplitter:
    """Feed it chunks of any size. What was not ended by an empty line when the stream ends is no event."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max = max_event
        self._pending: list[bytes] = []  # since the last whole event; not joined before it is whole
        self._size = 0
        self._after_cr = False
        self._at_start = True
        self._names: dict[bytes, str] = {}

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes. Raises EventTooLong."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._unify(chunk)
        if not chunk:
            return []
        pending = self._pending
        if b"\n\n" not in chunk and not (chunk[0] == 10 and pending and pending[-1][-1] == 10):
            pending.append(chunk)
            self._size += len(chunk)
            if self._size > self._max:
                raise EventTooLong()
            return []
        if pending:
            chunk = b"".join((*pending, chunk))
            pending.clear()
        blocks = chunk.split(b"\n\n")
        rest = blocks.pop()
        self._size = len(rest)
        if rest:
            pending.append(rest)
        events: list[SseEvent] = []
        for block in blocks:
            head, _, data = block.partition(b"\ndata: ")
            # What Hermes sends: one event line, one data line.
            if head[:7] == b"event: " and b"\n" not in head and b"\n" not in data and data:
                self._at_start = False
                events.append((self._names.get(head) or self._name(head[7:]), data))
            elif (event := self._parse(block)) is not None:
                events.append(event)
        return events

    def _parse(self, block: bytes) -> SseEvent | None:
        """The whole grammar. None for a block without data, such as a comment."""
        if self._at_start:
            block, self._at_start = block.removeprefix(_BOM), False
        name, data = b"", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ")
        return (self._name(name) if name else "message", b"\n".join(data)) if data else None

    def _name(self, raw: bytes) -> str:
        name = raw.decode(errors="replace")
        if len(self._names) < 64:  # a stream has a dozen names; one that makes them up is not remembered
            self._names[b"event: " + raw] = name
        return name

    def _unify(self, chunk: bytes) -> bytes:
        """Lines may end in CR LF, LF or CR; a CR at the end of a chunk may be half of a CR LF."""
        if not chunk:
            return chunk
        half, self._after_cr = self._after_cr, chunk[-1] == 13
        if half and chunk[0] == 10:
            chunk = chunk[1:]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def event_of(name: str, payload: Mapping[str, Any]) -> bytes:
    """One event, as the agent writes them."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(payload))
