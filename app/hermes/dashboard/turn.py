"""One turn as its socket tells it: which of a session's events are its own, and when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson

from app.hermes.dashboard.events import ENDS, Translation, Usage
from app.hermes.dashboard.lives import Live
from app.hermes.errors import StreamBroken
from app.hermes.upstream import Event, Hearer, Json

# Of events before Hermes answers the call that makes them ours; beyond it the turn's stream counts as broken.
MAX_HELD = 4096
MAX_HELD_BYTES = 64 * 1024 * 1024


class TurnListener:
    """Holds events until `begin` says what they belong to. `ended` gives the events of the end, or what broke it off.

    Another turn of the session may be running when ours is submitted. Its end is heard first, as `session.info` with
    `running: false`, and the next `message.start` is ours.
    """

    def __init__(self, hearer: Hearer, live: Live, approval_s: float, *, in_midst: bool = False) -> None:
        self._hearer = hearer
        self._live = live
        self._translation = Translation(approval_s, reasoned=in_midst)
        self._translation.start = None if in_midst else live.usage
        self._held: list[tuple[str, Json]] | None = []
        self._held_bytes = 0
        self._begun = False
        self._waits = False  # for the end of another turn
        self.count = 0
        self.usage: Json | None = None  # of the end, as Hermes counts
        self.ended: asyncio.Future[Sequence[Event]] = asyncio.get_running_loop().create_future()

    @property
    def may_have_moved(self) -> bool:
        """Whether Hermes compressed the conversation, which goes on under another id then."""
        start, end = self._translation.start, Usage.of(self.usage)
        return start is None or end.compressions > start.compressions

    @property
    def has_begun(self) -> bool:
        return self._begun

    def begin(self, *, queued: bool = False, in_midst: bool = False, said: str = "") -> None:
        """Hermes has answered. `said` is what its answer holds of the text already."""
        held, self._held = self._held or [], None
        self._waits, self._begun = queued, in_midst
        for kind, payload in _unsaid(held, said):
            self._take(kind, payload)

    def heard(self, kind: str, payload: Json) -> None:
        self.count += 1
        if self._held is None:
            self._take(kind, payload)
            return
        self._held_bytes += len(orjson.dumps(payload))
        if len(self._held) < MAX_HELD and self._held_bytes <= MAX_HELD_BYTES:
            self._held.append((kind, payload))
        else:
            self._held = []
            self.lost(StreamBroken("Hermes sent events and did not answer the request that they belong to"))

    def lost(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # looked at: the turn may have been given up already

    def cancelled(self) -> None:
        """Hermes has stopped it before it began, and will say nothing."""
        if not self.ended.done():
            self.ended.set_result([("run.cancelled", {})])

    def _take(self, kind: str, payload: Json) -> None:
        if self.ended.done() or not (self._begun or self._begins(kind, payload)):
            return
        events = self._translation.events(kind, payload)
        if kind in ENDS:
            self._live.settled.clear()
            usage = payload.get("usage")
            self.usage = usage if isinstance(usage, dict) else None
            self.ended.set_result(events)
        elif events:
            self._hearer.events(events)

    def _begins(self, kind: str, payload: Json) -> bool:
        if kind == "session.info" and payload.get("running") is False:
            self._waits = False
        elif kind == "message.start" and not self._waits:
            self._begun = True
            self._translation.start = self._live.usage
        return self._begun or (kind == "error" and not self._waits)


def _unsaid(held: Sequence[tuple[str, Json]], said: str) -> Sequence[tuple[str, Json]]:
    """Without the deltas that end what was said: they came while Hermes wrote its answer."""
    deltas = [payload.get("text") for kind, payload in held if kind == "message.delta"]
    said_twice, start = 0, ""
    for n, text in enumerate((text for text in deltas if isinstance(text, str)), 1):
        start += text
        if len(start) > len(said):
            break
        if said.endswith(start):
            said_twice = n
    out = []
    for kind, payload in held:
        if kind == "message.delta" and said_twice > 0:
            said_twice -= 1
        else:
            out.append((kind, payload))
    return out
