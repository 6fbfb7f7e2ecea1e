"""What phones were asked lately, and what came of it, without what nobody else should read."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
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

# So short, and without a sign that could part a name from its value, no secret gives itself away by its looks.
_HARMLESS = re.compile(r"[\w./-]{0,15}")

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
        hidden = {name: REDACTED if command.hides(name) else value for name, value in islice(args.items(), MAX_VALUES)}
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
        """`size` of the result, in bytes. Of what others wrote no more is told, nor where a phone may repeat what was
        typed. Why it refused is told, without that.
        """
        if status < 400 and (command.untrusted or command.is_private):
            summary = _outline(result, size)
        else:
            typed = [str(value) for name, value in args.items() if command.hides(name) and value]
            summary = orjson.dumps(redacted(result, typed)).decode()
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


def redacted(value: object, typed: Sequence[str] = ()) -> Any:
    """A short copy without what is secret by its name or by its looks, or was typed."""
    return _Redaction(typed).of(value, "", MAX_DEPTH)


class _Redaction:
    def __init__(self, typed: Sequence[str]) -> None:
        self._typed = typed
        self._left = MAX_VALUES

    def of(self, value: object, name: str, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth < 0:
            return "[cut]"
        if name and is_secret(name, value):
            return REDACTED
        if isinstance(value, dict):
            return self._object(value, depth - 1)
        if isinstance(value, list):
            is_pair = len(value) == 2 and isinstance(value[0], str)  # a header, as some libraries spell it
            names = ("", value[0] if is_pair else "")
            return [self.of(inner, names[min(n, 1)], depth - 1) for n, inner in enumerate(value[:MAX_VALUES])]
        if isinstance(value, str):
            for typed in self._typed:
                value = value.replace(typed, REDACTED)
            return _shown(value)
        return REDACTED if str(value) in self._typed else value

    def _object(self, value: dict[str, Any], depth: int) -> Any:
        said = value.get("name", value.get("key"))  # {"name": "password", "value": …}
        named = said if isinstance(said, str) else "value"
        pairs = islice(value.items(), MAX_VALUES)
        return {_shown(key): self.of(inner, named if key == "value" else key, depth) for key, inner in pairs}


def _shown(text: str) -> str:
    return text if _HARMLESS.fullmatch(text) else clean_text(text, MAX_TEXT)


def _outline(result: object, size: int) -> str:
    names = ", ".join(map(_shown, islice(result, 8))) if isinstance(result, dict) else ""
    return f"{{{names}}}, {size:,} bytes"
