"""What phones were asked lately, and what came of it, without what nobody else should read."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import orjson

from app.bridge.commands import Command
from app.errors import RelayError
from app.logs.names import is_secret
from app.logs.redaction import clean_text

MAX_ENTRIES = 500  # the oldest goes
REDACTED = "[redacted]"
MAX_TEXT = 200  # characters of one value
MAX_SUMMARY = 240  # characters of a result
MAX_VALUES = 40  # of one command or result
MAX_DEPTH = 6
HARMLESS = 16  # characters: no secret that gives itself away by its looks is shorter

Entry = dict[str, Any]


class Activity:
    """In memory, the newest last. `fresh` are the finished entries that were not stored yet."""

    def __init__(self) -> None:
        self._all: deque[Entry] = deque(maxlen=MAX_ENTRIES)
        self.fresh: deque[Entry] = deque(maxlen=MAX_ENTRIES)
        self.outcomes: Counter[str] = Counter()  # executed, refused (by the phone), or the code of the failure

    def load(self, stored: Iterable[bytes]) -> None:
        self._all.extend(orjson.loads(entry) for entry in stored)

    def begin(
        self, id: str, command: Command, args: Mapping[str, Any], *, now: float, device: tuple[str, str],
        alias: str | None, caller: str,
    ) -> Entry:  # fmt: skip
        """`device` is its id and name."""
        hidden = {name: REDACTED if name in command.private else value for name, value in islice(args.items(), 40)}
        entry: Entry = {
            "request_id": id, "method": command.method, "path": command.path, "params": redacted(hidden),
            "sent_at": now * 1000, "response_status": None, "result_summary": None, "error": None,
            "decision": "pending", "device_id": device[0], "device_name": device[1], "alias_used": alias,
            "caller": caller,
        }  # fmt: skip
        self._all.append(entry)
        return entry

    def answered(
        self, entry: Entry, command: Command, args: Mapping[str, Any], status: int, result: object, size: int
    ) -> None:
        """`size` of the result, in bytes. Of what others wrote no more is told; a result may repeat what was typed."""
        if command.untrusted and status < 400:
            summary = _outline(result, size)
        else:
            summary = orjson.dumps(redacted(result)).decode()
            for name in command.private:
                typed = args.get(name)
                if isinstance(typed, str) and typed:
                    summary = summary.replace(orjson.dumps(typed[:MAX_TEXT]).decode()[1:-1], REDACTED)
        entry |= {
            "response_status": status, "result_summary": summary[:MAX_SUMMARY],
            "decision": "executed" if status < 400 else "error",
        }  # fmt: skip
        self.outcomes["executed" if status < 400 else "refused"] += 1
        self.fresh.append(entry)

    def failed(self, entry: Entry, error: RelayError) -> None:
        decision = "denied" if error.code == "denied" else "error"
        entry |= {"response_status": error.http_status, "error": error.code, "decision": decision}
        self.outcomes[error.code] += 1
        self.fresh.append(entry)

    def latest(self, limit: int) -> list[Entry]:
        """Newest first."""
        return list(islice(reversed(self._all), limit))


def redacted(value: object) -> Any:
    """A short copy without what is secret by its name or by its looks."""
    return _redacted(value, "", [MAX_VALUES], MAX_DEPTH)


def _redacted(value: object, name: str, left: list[int], depth: int) -> Any:
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        return "[cut]"
    if name and is_secret(name, value):
        return REDACTED
    if isinstance(value, dict):
        pairs = islice(value.items(), MAX_VALUES)
        return {_shown(key): _redacted(inner, key, left, depth - 1) for key, inner in pairs}
    if isinstance(value, list):
        return [_redacted(inner, "", left, depth - 1) for inner in value[:MAX_VALUES]]
    return _shown(value) if isinstance(value, str) else value


def _shown(text: str) -> str:
    return text if len(text) < HARMLESS and text.isprintable() else clean_text(text, MAX_TEXT)


def _outline(result: object, size: int) -> str:
    names = ", ".join(map(_shown, islice(result, 8))) if isinstance(result, dict) else ""
    return f"{{{names}}}, {size:,} bytes"
