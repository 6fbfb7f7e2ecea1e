"""Who watches a turn, and how each gets its events: live, or, when behind, a snapshot and then the tail.

An event is encoded once. Nothing here awaits, so between a snapshot and the next event nothing can fall.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.delivery.peer import Peer
from app.turns.events import TAIL, Encoder, head, snapshot_frame, timestamp
from app.turns.state import Event, TurnState


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
        self._own_head = head(own_id) if own_id is not None else self._head
        self._all: dict[int, Watcher] = {}
        self._live: tuple[Watcher, ...] = ()  # those that are not behind

    def add(self, peer: Peer) -> None:
        if peer.link_id not in self._all and not peer.closed:
            own = peer.device_id == self._device_id
            self._all[peer.link_id] = Watcher(peer, self._own_head if own else self._head)
            self._sort()

    def remove(self, link_id: int) -> None:
        if self._all.pop(link_id, None) is not None:
            self._sort()

    def __contains__(self, peer: Peer) -> bool:
        return peer.link_id in self._all

    def snapshot(self, peer: Peer, frame_id: str | None = None) -> None:
        """Send the whole state; from here on this link is up to date."""
        peer.send(snapshot_frame(self._turn_id, self._state, frame_id))
        if (watcher := self._all.get(peer.link_id)) is not None and watcher.behind and not watcher.joins:
            watcher.behind = False
            self._sort()

    def send(self, frame: bytes, to: Callable[[Peer], bool] = lambda peer: True) -> None:
        """A frame that is not an event and may not be dropped."""
        for watcher in list(self._all.values()):
            if to(watcher.peer):
                watcher.peer.send(frame)

    def resnapshot(self) -> None:
        """The state was replaced: events alone would not lead there."""
        for watcher in list(self._all.values()):
            if not watcher.joins and not watcher.behind:
                self.snapshot(watcher.peer)

    def publish(self, events: Sequence[Event], ts: bytes) -> None:
        for event in events:
            n, name, payload = event
            body = self._encoder.body(n, name, payload, ts)
            last, frame = None, b""
            for watcher in self._live:
                if watcher.head is not last:
                    last = watcher.head
                    frame = b"%b%b%b" % (last, body, TAIL)
                if not watcher.peer.offer(frame):
                    self._fall_behind(watcher)
                    if watcher.joins:
                        watcher.backlog.append(event)
            if len(self._live) != len(self._all):
                for watcher in self._all.values():
                    if watcher.behind and watcher.joins and (not watcher.backlog or watcher.backlog[-1] is not event):
                        watcher.backlog.append(event)

    def rename(self, session_id: str) -> None:
        self._encoder.rename(session_id)

    def _sort(self) -> None:
        self._live = tuple(watcher for watcher in self._all.values() if not watcher.behind)

    def _fall_behind(self, watcher: Watcher) -> None:
        watcher.behind = True
        self._sort()
        watcher.peer.when_drained(lambda: self._catch_up(watcher))

    def _catch_up(self, watcher: Watcher) -> None:
        if self._all.get(watcher.peer.link_id) is not watcher or not watcher.behind:
            return
        if watcher.joins:
            self._join(watcher)
        elif not self._state.done or not watcher.peer.supports.delivery:  # else the kept end says it all
            self.snapshot(watcher.peer)

    def _join(self, watcher: Watcher) -> None:
        """What was missed, with deltas in a row made one."""
        backlog, watcher.backlog = joined(watcher.backlog), []
        for at, (n, name, payload) in enumerate(backlog):
            body = self._encoder.body(n, name, payload, timestamp(self._state.started_at))
            if not watcher.peer.offer(b"%b%b%b" % (watcher.head, body, TAIL)):
                watcher.backlog = backlog[at:]
                watcher.peer.when_drained(lambda: self._catch_up(watcher))
                return
        watcher.behind = False
        self._sort()


def joined(events: Sequence[Event]) -> list[Event]:
    """Each run of assistant.delta as one, numbered as its last."""
    out: list[Event] = []
    pieces: list[str] = []
    for n, name, payload in events:
        if name != "assistant.delta":
            pieces = []
            out.append((n, name, payload))
            continue
        if pieces:
            out.pop()
        pieces.append(payload["delta"])
        out.append((n, name, payload | {"delta": payload["delta"]}))
        out[-1] = (n, name, {**payload, "delta": pieces})
    return [(n, name, {**p, "delta": "".join(p["delta"])} if name == "assistant.delta" else p) for n, name, p in out]
