"""The requests that run, by session: whoever may not ask any more is not answered to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.errors import Draining, RelayError

Cut = Callable[[RelayError], None]


class Ticket:
    """Of one request. What it holds on to is cut with it."""

    __slots__ = ("_cut", "_error", "is_stream", "session_id")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.is_stream = False
        self._cut: Cut | None = None
        self._error: RelayError | None = None

    def hold(self, cut: Cut) -> None:
        """Instead of what it held before. Raises what the request was cut with meanwhile."""
        self._cut = cut
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def cut(self, error: RelayError) -> None:
        if self._error is None:
            self._error = error
            if self._cut is not None:
                self._cut(error)

    def hang_up(self) -> None:
        """Nobody reads the answer any more."""
        self.cut(RelayError("the client hung up"))


class Running:
    def __init__(self) -> None:
        self._by_session: dict[str, set[Ticket]] = {}
        self._draining = False

    @contextmanager
    def enter(self, session_id: str) -> Iterator[Ticket]:
        """Raises Draining."""
        if self._draining:
            raise Draining(retry_after=3)
        ticket = Ticket(session_id)
        tickets = self._by_session.setdefault(session_id, set())
        tickets.add(ticket)
        try:
            yield ticket
        finally:
            tickets.discard(ticket)
            if not tickets and self._by_session.get(session_id) is tickets:
                del self._by_session[session_id]

    def end_session(self, session_id: str, error: RelayError) -> None:
        for ticket in list(self._by_session.get(session_id, ())):
            ticket.cut(error)

    def drain(self) -> None:
        """No new ones; streams would outlast any patience, and what is left of the others has the server's."""
        self._draining = True
        for tickets in list(self._by_session.values()):
            for ticket in list(tickets):
                if ticket.is_stream:
                    ticket.cut(Draining(retry_after=3))
