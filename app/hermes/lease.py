"""What a turn is bound to before its first upstream byte, and the row ids that tell its rows from older ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

CREDENTIAL = 1  # there is one key, from the settings; it does not change while the relay runs
MAX_SESSIONS = 1000  # whose last row is remembered
MAX_SINCE = 20  # turns submitted since a session's rows were read; then they are read again


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """Two marks of the same Hermes process are equal; after a restart they differ."""

    pid: int | None
    updated_at: str | None


@dataclass(frozen=True, slots=True)
class Lease:
    """Failure, and every event, belongs to the lease under which it happened."""

    route: str  # which kind of upstream
    base: str  # fingerprint of the base URL
    session_id: str
    endpoint: str  # path as advertised
    credential: int  # generation of the key in use
    drop_interrupts: bool  # whether the turn ends when its stream is dropped
    mark: ProcessMark | None  # None: this Hermes does not say
    last_row: int  # the highest row id known before the submit
    since: tuple[str, ...]  # turns of ours submitted to the session after `last_row` was read, oldest first
    profile: str | None = None
    run_id: str | None = None  # Hermes' own name for what runs: a run, or a live session of its dashboard

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Also of a lease that was stored before the fields with a default were there."""
        mark = value["mark"]
        changed = {"mark": ProcessMark(**mark) if mark else None, "since": tuple(value["since"])}
        return cls(**{**value, **changed})


@dataclass(slots=True)
class _Known:
    last_row: int
    since: list[str]


class RowMarks:
    """The last row id known of each session. A session's rows are read once, not before every turn."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def get(self, session_id: str) -> tuple[int, tuple[str, ...]] | None:
        """None: read the rows first."""
        known = self._known.get(session_id)
        if known is None or len(known.since) >= MAX_SINCE:
            return None
        self._known.move_to_end(session_id)
        return known.last_row, tuple(known.since)

    def read(self, session_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """These are all rows of a session in which no turn of ours runs; none for a new one."""
        self._known[session_id] = _Known(last_row_id(rows), [])
        self._known.move_to_end(session_id)
        while len(self._known) > MAX_SESSIONS:
            self._known.popitem(last=False)

    def forget(self, session_id: str) -> None:
        self._known.pop(session_id, None)

    def submitted(self, session_id: str, turn_id: str) -> None:
        """Hermes has taken this turn: it accounts for a row after the last one known."""
        if (known := self._known.get(session_id)) is not None:
            known.since.append(turn_id)


def last_row_id(rows: Iterable[Mapping[str, Any]]) -> int:
    return max((row["id"] for row in rows if isinstance(row.get("id"), int)), default=0)


def session_of(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The session that these rows are of: Hermes gives those of where a conversation went on."""
    session_id = rows[-1].get("session_id") if rows else None
    return session_id if isinstance(session_id, str) and session_id else None
