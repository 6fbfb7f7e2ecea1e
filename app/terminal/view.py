"""One device's sight of a session: its size, and what of the output it has been sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import orjson

from app.delivery.peer import Peer
from app.wire.envelope import encode

STORM_S = 0.05  # between two changes of size; of those that come faster the last counts


class Session(Protocol):
    """What a view shows. `name` may change."""

    name: str
    created_at: float
    pid: int | None
    killed: bool

    @property
    def views(self) -> tuple[View, ...]: ...
    @property
    def is_held(self) -> bool:
        """Whether the relay has anything of it: its terminal, or a client of tmux."""

    def write(self, view: View, data: bytes) -> None:
        """Raises TerminalInputFull."""

    def resize(self, view: View) -> None:
        """To `view.size`."""

    def detach(self, view: View) -> None:
        """It shows no more, and its size counts no more."""


Ended = Callable[[Session, Iterable["View"]], None]  # a session, or these views of it


class View:
    """`may_read` says whether the device may still read terminals; `lost` is called when it is found that it may not.

    Frames go out one by one while none waits for the transport: a reader that stops has one of them queued, by whose
    age the gateway ends its link, and the session is held back only by what its stream keeps for it.
    """

    def __init__(
        self, peer: Peer, session: Session, name: str, size: tuple[int, int], *,
        may_read: Callable[[], bool], lost: Callable[[View], None],
    ) -> None:  # fmt: skip
        self.peer, self.session, self.size = peer, session, size
        self.position = 0  # in its stream: set by it
        self._may_read, self._lost = may_read, lost
        self._first: deque[bytes] = deque()  # what is shown before the stream
        self._started = self._waits = self._over = False
        self._end: bytes | None = None
        self._more: Callable[[], None] = lambda: None
        self._storm: asyncio.TimerHandle | None = None
        self.name = name

    @property
    def name(self) -> str:
        """What the device calls the session."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        head = encode("terminal", "terminal.output", {"session_name": name, "data": ""})
        self._head = head[: -len(b'""}}')]

    # output

    def show(self, texts: Iterable[str], more: Callable[[], None]) -> None:
        """First these; `more` is called when the stream can go on."""
        self._first.extend(map(orjson.dumps, texts))
        self._more = more

    def start(self) -> None:
        """The device has been told that it is attached."""
        self._started = True
        self.go_on()

    def take(self, body: bytes) -> bool:
        """A piece of output as JSON; False: not now, `more` will be called."""
        if not self._is_open():
            return False
        self.peer.send(b"".join((self._head, body, b"}}")))
        return True

    def end(self, reason: str, outcome: Mapping[str, Any] | None = None) -> None:
        """Say that it is detached, after the output that is still to come."""
        payload = {"session_name": self._name, "reason": reason} | dict(outcome or {})
        self._end = encode("terminal", "terminal.detached", payload)
        self.go_on()

    def drop(self) -> None:
        """Say and show nothing more."""
        self._over = True
        self._first.clear()
        self._more = lambda: None
        if self._storm is not None:
            self._storm.cancel()

    @property
    def ended(self) -> bool:
        return self._end is not None

    @property
    def begins(self) -> bool:
        """It has not been sent all that comes before the stream."""
        return bool(self._first)

    def go_on(self) -> None:
        while self._first:
            if not self.take(self._first[0]):
                return
            self._first.popleft()
        self._more()

    def finish(self) -> None:
        """The stream has nothing more for it now: if it has ended, that is said."""
        if self._end is not None and self._started and not self._over:
            self.peer.send(self._end)
            self.drop()

    def _is_open(self) -> bool:
        if self._over or not self._started or self.peer.closed:
            return False
        if not self._may_read():
            self._lost(self)
            return False
        if self.peer.queued and not self._waits:
            self._waits = True
            self.peer.when_drained(self._drained)
        return not self._waits

    def _drained(self) -> None:
        self._waits = False
        self.go_on()

    # size

    def resize(self, cols: int, rows: int) -> None:
        """At once, and then at most every STORM_S."""
        if (cols, rows) == self.size:
            return
        self.size = (cols, rows)
        if self._storm is None:
            self._apply()

    def _apply(self) -> None:
        self._applied = self.size
        self.session.resize(self)
        self._storm = asyncio.get_running_loop().call_later(STORM_S, self._calm)

    def _calm(self) -> None:
        self._storm = None
        if self._applied != self.size and not self._over:
            self._apply()
