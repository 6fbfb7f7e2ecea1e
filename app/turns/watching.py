"""Which links watch which turns: those of their device, those they asked for, and those of sessions they follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.clock import Clock
from app.delivery.peer import Peer
from app.errors import RateLimited
from app.turns.turn import Turn
from app.turns.watchers import may_watch

MAX_SESSIONS = 200  # that one link may follow: more than a client has open


class Watching:
    """`live` are the turns that have not ended; this only reads it. Nothing here awaits."""

    def __init__(self, live: Mapping[str, Turn], clock: Clock) -> None:
        self._live, self._clock = live, clock
        self._sessions: dict[str, dict[int, Peer]] = {}
        self._links: dict[int, set[str]] = {}  # link → the sessions it follows; all links that watch anything

    def began(self, turn: Turn, own_links: Iterable[Peer]) -> None:
        """A turn begins: nothing of it has been sent, so nobody needs a snapshot."""
        for peer in own_links:
            if peer.supports.turns:
                self.watch(peer, turn)
        for peer in self._sessions.get(turn.state.session_id, {}).values():
            self.watch(peer, turn)

    def watch(self, peer: Peer, turn: Turn) -> None:
        if may_watch(peer, self._clock.now()):
            turn.watchers.add(peer)
            self._await_close(peer)

    def show(self, peer: Peer, turn: Turn, frame_id: str | None = None) -> None:
        """Snapshot and registration are one step."""
        self.watch(peer, turn)
        if peer in turn.watchers:
            turn.watchers.snapshot(peer, frame_id)

    def attach(self, peer: Peer) -> None:
        for turn in list(self._live.values()):
            if turn.device_id == peer.device_id and peer not in turn.watchers:
                self.show(peer, turn)

    def watch_session(self, peer: Peer, session_id: str, frame_id: str | None) -> None:
        """Raises RateLimited."""
        if peer.closed:
            return
        followed = self._await_close(peer)
        if session_id not in followed and len(followed) >= MAX_SESSIONS:
            raise RateLimited(f"a link follows at most {MAX_SESSIONS} conversations")
        self._follow(peer, session_id)
        for turn in self._of_session(session_id):
            self.show(peer, turn, frame_id)

    def unwatch(self, peer: Peer, session_id: str | None, turn: Turn | None) -> None:
        if turn is not None:
            turn.watchers.remove(peer.link_id)
        if session_id is not None:
            self._drop(session_id, peer.link_id)
            for other in self._of_session(session_id):
                other.watchers.remove(peer.link_id)

    def moved(self, old: str, new: str) -> None:
        """Who follows a session follows it to where its conversation moved."""
        for peer in list(self._sessions.get(old, {}).values()):
            self._follow(peer, new)

    def _of_session(self, session_id: str) -> list[Turn]:
        return [turn for turn in self._live.values() if turn.session_id == session_id]

    def _follow(self, peer: Peer, session_id: str) -> None:
        self._sessions.setdefault(session_id, {})[peer.link_id] = peer
        self._links[peer.link_id].add(session_id)

    def _await_close(self, peer: Peer) -> set[str]:
        link_id = peer.link_id
        if link_id not in self._links:
            self._links[link_id] = set()
            peer.when_closed(lambda _clean: self._closed(link_id))
        return self._links[link_id]

    def _closed(self, link_id: int) -> None:
        for turn in self._live.values():
            turn.watchers.remove(link_id)
        for session_id in list(self._links.get(link_id, ())):
            self._drop(session_id, link_id)
        self._links.pop(link_id, None)

    def _drop(self, session_id: str, link_id: int) -> None:
        self._links.get(link_id, set()).discard(session_id)
        links = self._sessions.get(session_id, {})
        links.pop(link_id, None)
        if not links:
            self._sessions.pop(session_id, None)
