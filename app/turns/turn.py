"""A turn that has not ended, as it lives in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.clock import Clock
from app.errors import RelayError
from app.hermes.lease import Lease
from app.hermes.listener import Listener
from app.hermes.upstream import Event as UpstreamEvent
from app.hermes.upstream import Order, Passed, Upstream
from app.turns.errors import TurnStopped, described
from app.turns.events import timestamp
from app.turns.fold import end, fold
from app.turns.state import Event, Json, TurnState
from app.turns.watchers import Watchers
from app.wire.envelope import encode

Moved = Callable[["Turn", str, str], None]  # turn, from, to


@dataclass(slots=True)
class Bond:
    """The upstream that a turn was given to, and what it is bound to there."""

    upstream: Upstream
    lease: Lease


class Turn:
    """`message` is what was sent: {message, model?, profile?, frame_id?, passed?}."""

    __slots__ = (
        "_clock", "_moved", "_session", "answered",
        "bond", "created_at", "device_id", "listener", "message", "state", "submitted", "turn_id", "watchers",
    )  # fmt: skip

    def __init__(
        self, turn_id: str, device_id: str, session_id: str | None, message: Json, *, created_at: float, clock: Clock,
        moved: Moved,
    ) -> None:  # fmt: skip
        self.turn_id, self.device_id, self.message = turn_id, device_id, message
        self.created_at = created_at
        self.bond: Bond | None = None  # once it may be submitted
        self.submitted = False  # upstream may have it
        self.answered = False  # upstream has it
        self.listener: Listener | None = None  # who asked for it over Hermes' own API
        self.state = TurnState(session_id or "", created_at)
        self.watchers = Watchers(turn_id, device_id, message.get("frame_id"), self.state)
        self._session = self.state.session_id
        self._clock, self._moved = clock, moved

    @property
    def session_id(self) -> str | None:
        return self.state.session_id or None

    @property
    def sent(self) -> Any:
        """The user's message: text, or parts."""
        return self.message["message"]

    @property
    def by_agent(self) -> bool:
        """Hermes began it by itself: nothing was sent."""
        return bool(self.sent == "")

    @property
    def order(self) -> Order:
        asked = self.message.get("passed")
        passed = None if asked is None else Passed(asked["body"], asked.get("session_key"), self.listener)
        return Order(self.sent, self.message.get("model"), self.message.get("profile"), passed)

    @property
    def bound(self) -> Bond:
        """For who knows that it was submitted."""
        assert self.bond is not None
        return self.bond

    def bind(self, session_id: str) -> None:
        """A new conversation got its session, or one that waits follows its session."""
        self.state.bind(session_id)
        self._session = session_id
        self.watchers.rename(session_id)

    def take(self, events: Sequence[UpstreamEvent]) -> None:
        """What one read of the stream brought."""
        state, now = self.state, self._clock.now()
        ts = timestamp(now)
        for name, body in events:
            out = fold(state, name, body, now)
            if state.session_id != self._session:
                self._move()
            if out:
                self.watchers.publish(out, ts)

    def follow(self, session_id: str) -> None:
        """The conversation went on there while nobody listened."""
        self.state.session_id = session_id
        self._move()

    def finish(self, finish: str, error: RelayError | None = None) -> None:
        """An end that no stream brought. Does nothing to a turn that has one."""
        if self.listener is not None:
            self.listener.ended(error or TurnStopped())
        self.publish(end(self.state, finish, None if error is None else described(error)))

    def publish(self, events: Sequence[Event]) -> None:
        self.watchers.publish(events, timestamp(self._clock.now()))

    def _move(self) -> None:
        old, self._session = self._session, self.state.session_id
        self.watchers.rename(self._session)
        self._moved(self, old, self._session)
        moved = {"turn_id": self.turn_id, "from": old, "to": self._session}
        self.watchers.send(encode("chat", "chat.session.moved", moved, id=self.turn_id))
