"""Who watches a turn, and how each gets its events: live, or, when behind, a snapshot and then the tail.

An event is encoded once. Nothing here awaits, so between a snapshot and the next event nothing can fall.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from app.delivery.peer import Peer, granted
from app.turns.events import TAIL, Encoder, head, snapshot_frame
from app.turns.state import Event, TurnState


def may_watch(peer: Peer, now: float) -> bool:
    """Whether this link is open and granted the chat now."""
    return not peer.closed and granted(peer.grants, "chat", now)


class Watcher:
    """One link that watches one turn."""

    __slots__ = ("backlog", "behind", "head", "joins", "peer")

    def __init__(self, peer: Peer, frame_head: bytes) -> None:
        self.peer = peer
        self.head = frame_head
        self.behind = False
        self.joins = not peer.supports.turns  # an older client knows no snapshot: what it missed is joined
        self.backlog: list[Event] = []


class Watchers:
    """Of one turn. `own_id` is the id of the sender's frame, for the sender's device."""

    def __init__(self, turn_id: str, device_id: str, own_id: str | None, state: TurnState) -> None:
        self._turn_id, self._device_id, self._state = turn_id, device_id, state
        self._encoder = Encoder(turn_id, state.session_id)
        self._head = head(turn_id)
        self._own_head = self._head if own_id is None else head(own_id)
        self._all: dict[int, Watcher] = {}
        self._live: tuple[Watcher, ...] = ()  # those that are not behind
        self._late: tuple[Watcher, ...] = ()  # those that are, and join
        self._ts = b""  # of the last events
        self._end = b""  # frame of the end, for clients that nothing is kept for

    # who

    def add(self, peer: Peer) -> None:
        if peer.link_id not in self._all:
            own = peer.device_id == self._device_id
            self._all[peer.link_id] = Watcher(peer, self._own_head if own else self._head)
            self._sort()

    def remove(self, link_id: int) -> None:
        if self._all.pop(link_id, None) is not None:
            self._sort()

    def review(self, now: float) -> None:
        """Leave out whose grant has ended."""
        for link_id, watcher in list(self._all.items()):
            if not may_watch(watcher.peer, now):
                self.remove(link_id)

    def __contains__(self, peer: Peer) -> bool:
        return peer.link_id in self._all

    def _sort(self) -> None:
        watchers = self._all.values()
        self._live = tuple(w for w in watchers if not w.behind)
        self._late = tuple(w for w in watchers if w.behind and w.joins)

    # what

    def publish(self, events: Sequence[Event], ts: bytes) -> None:
        """Runs for every event of a turn: no task, no log line."""
        self._ts = ts
        for event in events:
            for late in self._late:
                late.backlog.append(event)
            n, name, payload = event
            body = self._encoder.body(n, name, payload, ts)
            last, frame = None, b""
            for watcher in self._live:
                if watcher.head is not last:
                    last = watcher.head
                    frame = b"%b%b%b" % (last, body, TAIL)
                if not watcher.peer.offer(frame):
                    self._fall_behind(watcher, event)

    def snapshot(self, peer: Peer, frame_id: str | None = None) -> None:
        """Send the whole state; from here on this link is up to date."""
        peer.send(snapshot_frame(self._turn_id, self._state, frame_id))
        watcher = self._all.get(peer.link_id)
        if watcher is not None and watcher.behind and not watcher.joins:
            watcher.behind = False
            self._sort()

    def resnapshot(self) -> None:
        """The state was replaced: events alone would not lead there."""
        for watcher in self._live:
            if not watcher.joins:
                self.snapshot(watcher.peer)

    def send(self, frame: bytes) -> None:
        """A frame that is no event and may not be dropped."""
        for watcher in list(self._all.values()):
            watcher.peer.send(frame)

    def ended(self, frame: bytes) -> None:
        """The end is stored and kept. `frame` tells those that have no mailbox."""
        self._end = frame
        for watcher in self._live:
            self._tell_end(watcher.peer)

    def rename(self, session_id: str) -> None:
        self._encoder.rename(session_id)

    # behind

    def _fall_behind(self, watcher: Watcher, event: Event) -> None:
        watcher.behind = True
        if watcher.joins:
            watcher.backlog.append(event)
        self._sort()
        watcher.peer.when_drained(lambda: self._catch_up(watcher))

    def _catch_up(self, watcher: Watcher) -> None:
        if self._all.get(watcher.peer.link_id) is not watcher or not watcher.behind:
            return
        if watcher.joins:
            self._join(watcher)
        elif not self._end:
            self.snapshot(watcher.peer)
        else:
            self._tell_end(watcher.peer)

    def _join(self, watcher: Watcher) -> None:
        """Send what was missed, deltas in a row made one."""
        backlog, watcher.backlog = joined(watcher.backlog), []
        for at, (n, name, payload) in enumerate(backlog):
            body = self._encoder.body(n, name, payload, self._ts)
            if not watcher.peer.offer(b"%b%b%b" % (watcher.head, body, TAIL)):
                watcher.backlog = backlog[at:]
                watcher.peer.when_drained(lambda: self._catch_up(watcher))
                return
        watcher.behind = False
        self._sort()

    def _tell_end(self, peer: Peer) -> None:
        if peer.supports.turns and not peer.supports.delivery:
            peer.send(self._end)


def joined(events: Sequence[Event]) -> list[Event]:
    """Each run of assistant.delta as one event, numbered as its last."""
    out: list[Event] = []
    for is_delta, group in groupby(events, key=lambda event: event[1] == "assistant.delta"):
        run = list(group)
        if is_delta:
            n, name, payload = run[-1]
            run = [(n, name, payload | {"delta": "".join(p["delta"] for _, _, p in run)})]
        out += run
    return out
