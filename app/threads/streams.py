"""Messages while they are written, in memory: each reader sees the newest version as fast as it can take one.

At most one version of all messages waits for a reader, so a slow one skips versions and never piles them up. What is
half written is stored now and then (`checkpoint`), so that a restart of the relay can go on with it, and close it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.clock import Clock
from app.delivery.peer import Peer, granted
from app.threads.policy import Step
from app.threads.store import Lane
from app.wire.envelope import encode

log = logging.getLogger("talaria.threads")

MAX_DRAFTS = 256  # messages that are written at the same time; the oldest is forgotten, its end is still kept
MAX_ENDED = 512  # messages that are remembered as ended
MAX_BUBBLES = 64  # of one thread that are remembered
MAX_LANES = 256  # threads in which something goes on; what goes on in the oldest is forgotten

Json = dict[str, Any]


@dataclass(slots=True, eq=False)
class Draft:
    """A message that is being written. `n` counts its versions."""

    message_id: str
    lane: Lane
    text: str
    reply_to: str | None = None
    n: int = 1
    touched_at: float = 0.0  # Unix seconds
    dirty: bool = True  # it has changed since it was last stored
    _encoded: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def frame(self, type_: str) -> bytes:
        """Encoded once for all readers."""
        n, frame = self._encoded.get(type_, (0, b""))
        if n != self.n:
            frame = encode("messages", type_, self.payload(), id=self.message_id)
            self._encoded[type_] = self.n, frame
        return frame

    def payload(self) -> Json:
        said = {"message_id": self.message_id, **self.lane.as_json(), "n": self.n, "text": self.text}
        return said | ({} if self.reply_to is None else {"reply_to": self.reply_to})

    @classmethod
    def restored(cls, said: Json, now: float) -> Draft:
        lane = Lane(said["chat_id"], said.get("thread_id") or "")
        return cls(said["message_id"], lane, said["text"], said.get("reply_to"), said["n"], now, dirty=False)


@dataclass(slots=True, eq=False)
class Busy:
    """What goes on in a thread besides its messages."""

    typing: bool = False
    steps: dict[str, Json] = field(default_factory=dict)  # tools that run: id → payload of tool.started
    told: dict[str, list[Step]] = field(default_factory=dict)  # by bubble


class Reader:
    """One open link. `may_read`: it is open, and its session may read what is said in chats."""

    def __init__(self, peer: Peer, clock: Clock) -> None:
        self.peer, self._clock = peer, clock
        self._due: dict[str, Draft] = {}
        self._begun: set[str] = set()
        self._waits = False

    @property
    def may_read(self) -> bool:
        return not self.peer.closed and granted(self.peer.grants, "chat", self._clock.now())

    def show(self, draft: Draft) -> None:
        self._due[draft.message_id] = draft
        if not self._waits:
            self._next()

    def forget(self, message_id: str) -> None:
        """Its end goes another way."""
        self._due.pop(message_id, None)
        self._begun.discard(message_id)

    def _next(self) -> None:
        id, draft = next(iter(self._due.items()))
        type_ = "message.update" if id in self._begun else "message.start"
        if self.peer.offer(draft.frame(type_)):
            self._begun.add(id)
            del self._due[id]
        self._waits = True
        self.peer.when_drained(self._drained)

    def _drained(self) -> None:
        self._waits = False
        if self._due and self.may_read:
            self._next()

    def again(self) -> None:
        self._begun.clear()


class Streams:
    """Nothing here awaits. `changed` is called when there is something to store."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        self._clock, self._changed = clock, changed
        self._drafts: dict[str, Draft] = {}
        self._busy: dict[Lane, Busy] = {}
        self._readers: dict[int, Reader] = {}
        self._ended: dict[str, None] = {}

    # who reads

    def attach(self, peer: Peer) -> None:
        """A link that has what was kept for it: show it what is under way."""
        if not peer.supports.delivery or peer.closed:
            return
        reader = self._readers.get(peer.link_id)
        if reader is None:
            reader = self._readers[peer.link_id] = Reader(peer, self._clock)
            peer.when_closed(lambda _clean: self._left(peer.link_id))
        reader.again()
        if not reader.may_read:
            return
        for draft in self._drafts.values():
            if draft.lane.concerns(peer.device_id):
                reader.show(draft)
        for lane, busy in self._busy.items():
            if lane.concerns(peer.device_id):
                for step in busy.steps.values():
                    peer.offer(encode("messages", "tool.started", step))
                if busy.typing:
                    peer.offer(encode("messages", "typing", lane.as_json() | {"on": True}))

    def _left(self, link_id: int) -> None:
        self._readers.pop(link_id, None)

    def tell(self, lane: Lane, type_: str, payload: Json, besides: Peer | None = None) -> None:
        """A frame that a slow reader misses."""
        frame = encode("messages", type_, lane.as_json() | payload)
        for reader in self._reading(lane):
            if reader.peer is not besides:
                reader.peer.offer(frame)

    def _reading(self, lane: Lane) -> list[Reader]:
        return [one for one in self._readers.values() if one.may_read and lane.concerns(one.peer.device_id)]

    # messages

    def update(self, id: str, lane: Lane, text: str, reply_to: str | None) -> None:
        draft = self._drafts.get(id)
        if id in self._ended:
            return
        if draft is None:
            if len(self._drafts) >= MAX_DRAFTS:
                oldest = next(iter(self._drafts))
                log.warning("more messages are written at once than are shown", extra={"dropped": oldest})
                self.drop(oldest)
            draft = self._drafts[id] = Draft(id, lane, text, reply_to)
            self.calm(lane)
        elif draft.text == text:
            return
        else:
            draft.text, draft.n = text, draft.n + 1
        draft.touched_at, draft.dirty = self._clock.now(), True
        for reader in self._reading(lane):
            reader.show(draft)
        self._changed()

    def restore(self, drafts: list[Json]) -> None:
        for said in drafts:
            draft = Draft.restored(said, self._clock.now())
            self._drafts[draft.message_id] = draft

    def get(self, id: str) -> Draft | None:
        return self._drafts.get(id)

    def end(self, id: str) -> None:
        """Its end is stored: what comes of it late is no beginning."""
        self._ended.pop(id, None)
        self._ended[id] = None
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self.drop(id)

    def drop(self, id: str) -> None:
        if self._drafts.pop(id, None) is not None:
            for reader in self._readers.values():
                reader.forget(id)

    def of_lane(self, lane: Lane) -> list[Draft]:
        return [draft for draft in self._drafts.values() if draft.lane == lane]

    def answering(self, inbound_id: str) -> list[Draft]:
        return [draft for draft in self._drafts.values() if draft.reply_to == inbound_id]

    def stale(self, before: float) -> list[Draft]:
        return [draft for draft in self._drafts.values() if draft.touched_at < before]

    def dirty(self) -> list[Draft]:
        return [draft for draft in self._drafts.values() if draft.dirty]

    # what else goes on

    def progress(self, bubble: str, lane: Lane, steps: list[Step]) -> None:
        """The steps of a bubble so far. A tool counts as completed when the next begins, or an answer does."""
        busy = self._busy_in(lane)
        told = busy.told.pop(bubble, [])
        for index, step in enumerate(steps):
            if index < len(told) and (step == told[index] or told[index].tool is not None):
                continue
            tool_id = f"{bubble}.{index}"
            if step.tool is None:
                self.tell(lane, "commentary", {"commentary_id": tool_id, "text": step.text})
                continue
            self._complete(lane, busy)
            said = lane.as_json() | {"tool_id": tool_id, "tool_name": step.tool, "preview": step.text}
            busy.steps[tool_id] = said
            self.tell(lane, "tool.started", said)
        busy.told[bubble] = steps
        if len(busy.told) > MAX_BUBBLES:
            del busy.told[next(iter(busy.told))]

    def _busy_in(self, lane: Lane) -> Busy:
        if lane not in self._busy and len(self._busy) >= MAX_LANES:
            del self._busy[next(iter(self._busy))]
        return self._busy.setdefault(lane, Busy())

    def knows_bubble(self, bubble: str, lane: Lane) -> bool:
        return lane in self._busy and bubble in self._busy[lane].told

    def is_typing(self, lane: Lane) -> bool:
        return lane in self._busy and self._busy[lane].typing

    def calm(self, lane: Lane) -> None:
        """An answer is there, or the turn is over: no tool runs any more."""
        if (busy := self._busy.get(lane)) is not None:
            self._complete(lane, busy)

    def _complete(self, lane: Lane, busy: Busy) -> None:
        steps, busy.steps = busy.steps, {}
        for said in steps.values():
            self.tell(lane, "tool.completed", said)

    def typing(self, lane: Lane, *, on: bool) -> None:
        busy = self._busy_in(lane)
        if busy.typing != on:
            busy.typing = on
            self.tell(lane, "typing", {"on": on})

    def still(self) -> None:
        """Nobody is there any more who could say that something has ended."""
        for lane, busy in self._busy.items():
            self._complete(lane, busy)
            if busy.typing:
                self.tell(lane, "typing", {"on": False})
        self._busy.clear()
