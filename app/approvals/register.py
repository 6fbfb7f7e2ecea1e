"""All asks that matter now, in memory: by id, by turn, and approvals by lane in the order in which they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.approvals.ask import LINGER_S, MARGIN_S, Asker, Kind
from app.clock import Clock

MAX_OF_TURN = 64  # open and waiting: far above what an agent asks at a time
MAX_ALL = 256


class State(StrEnum):
    WAITING = "waiting"
    OPEN = "open"
    ANSWERING = "answering"
    CLOSED = "closed"


@dataclass(slots=True, eq=False)
class Entry:
    """One ask. Times are Unix seconds; `heard` is the monotonic time at which it was asked."""

    id: str
    kind: Kind
    lane: str
    turn_id: str | None
    tool_id: str | None
    ref: str | None
    payload: dict[str, Any]  # of the request, without its state
    timeout_s: float
    heard: float
    state: State
    asker: Asker | None
    blocks_until: float = 0.0  # monotonic
    blocks: bool = False  # it is closed, or was never shown, but the upstream may still think of it as its oldest
    shown: bool = False  # it is stored, and kept for the devices
    outcome: str | None = None
    recorded: bool = False  # its outcome is stored, or there is none to be
    reminded: bool = False
    restored: bool = False  # from before a start of the relay: what became of it meanwhile was not heard
    passed: bool = False  # the agent went on while an answer was under way
    answered: asyncio.Event = field(default_factory=asyncio.Event)  # set unless an answer is under way

    def __post_init__(self) -> None:
        self.blocks_until = self.blocks_until or self.heard + self.timeout_s + LINGER_S
        self.answered.set()

    @property
    def live(self) -> bool:
        """It has no outcome yet."""
        return self.state is not State.CLOSED

    @property
    def expires_at(self) -> float:
        return float(self.payload["expires_at"])

    def is_late(self, clock: Clock) -> bool:
        """By either clock: one may have been set, the other stands still while the host sleeps."""
        return clock.monotonic() >= self.heard + self.timeout_s - MARGIN_S or clock.now() >= self.expires_at

    def left_s(self, clock: Clock) -> float:
        """Until the upstream's own end."""
        return self.heard + self.timeout_s - clock.monotonic()

    @property
    def half_time(self) -> float:
        return self.heard + self.timeout_s / 2

    def next_moment(self, clock: Clock) -> float | None:
        """Seconds until something is to be done about it; None: nothing that time brings."""
        now = clock.monotonic()
        if self.state is State.CLOSED:
            return self.blocks_until - now if self.blocks else None
        if self.state is State.ANSWERING:
            return None
        expires = min(self.heard + self.timeout_s - MARGIN_S - now, self.expires_at - clock.now())
        return expires if self.reminded else min(expires, self.half_time - now)

    def as_payload(self) -> dict[str, Any]:
        """Of `approval.request` or `question.ask` as it stands. One that is being answered still looks open."""
        if self.kind == "question":
            return self.payload
        return self.payload | {"state": "waiting" if self.state is State.WAITING else "open"}


class Register:
    """An entry stays as long as it is live, blocks its lane, or has an outcome that is not stored."""

    def __init__(self) -> None:
        self._all: dict[str, Entry] = {}
        self._lanes: dict[str, list[Entry]] = {}
        self._turns: dict[str, list[Entry]] = {}

    def add(self, entry: Entry) -> None:
        self._all[entry.id] = entry
        if entry.kind == "approval":
            self._lanes.setdefault(entry.lane, []).append(entry)
        if entry.turn_id is not None:
            self._turns.setdefault(entry.turn_id, []).append(entry)

    def tidy(self, entry: Entry) -> None:
        """Called after each change of a closed one."""
        if not entry.blocks:
            _drop(self._lanes, entry.lane, entry)
            _drop(self._turns, entry.turn_id, entry)
            if entry.recorded:
                self._all.pop(entry.id, None)

    def get(self, id: str, kind: Kind) -> Entry | None:
        entry = self._all.get(id)
        return entry if entry is not None and entry.kind == kind and entry.shown else None

    def of_turn(self, turn_id: str) -> list[Entry]:
        return list(self._turns.get(turn_id, ()))

    def oldest(self, turn_id: str, clock: Clock) -> Entry | None:
        """The approval that its upstream answers first, as long as it waits for one."""
        waits = (entry for entry in self.of_turn(turn_id) if entry.kind == "approval" and entry.left_s(clock) > 0)
        return next((entry for entry in waits if entry.live or entry.blocks), None)

    def head(self, lane: str) -> Entry | None:
        """The one that an answer would reach."""
        entries = self._lanes.get(lane)
        return entries[0] if entries else None

    def of_lane(self, lane: str) -> list[Entry]:
        return list(self._lanes.get(lane, ()))

    def tail(self, lane: str) -> Entry | None:
        entries = self._lanes.get(lane)
        return entries[-1] if entries else None

    def is_crowded(self, turn_id: str | None) -> bool:
        of_turn = sum(entry.live for entry in self._turns.get(turn_id or "", ()))
        return of_turn >= MAX_OF_TURN or sum(entry.live for entry in self._all.values()) >= MAX_ALL

    def __iter__(self) -> Iterator[Entry]:
        yield from list(self._all.values())


def _drop(index: dict[str, list[Entry]], key: str | None, entry: Entry) -> None:
    entries = index.get(key or "")
    if entries is not None and entry in entries:
        entries.remove(entry)
        if not entries:
            del index[key or ""]
