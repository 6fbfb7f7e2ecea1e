"""News for links that did not make them: best effort, for they can be asked for, or come with the next auth.ok."""

from __future__ import annotations

from typing import Any

from app.clock import Clock
from app.delivery.hub import Hub
from app.delivery.peer import Peer, granted
from app.wire.envelope import encode


class News:
    def __init__(self, hub: Hub, clock: Clock) -> None:
        self._hub, self._clock = hub, clock

    def conversation(
        self, session_id: str, *, title: str | None = None, deleted: bool = False, besides: Peer | None = None
    ) -> None:
        """`chat.session` to every open link that may chat and knows turns, but not to the one it comes from."""
        payload = (
            {"session_id": session_id} | ({"title": title} if title else {}) | ({"deleted": True} if deleted else {})
        )
        frame, now = encode("chat", "chat.session", payload), self._clock.now()
        for peer in self._hub:
            if peer is not besides and peer.supports.turns and granted(peer.grants, "chat", now):
                peer.send(frame)

    def upstream(self, states: dict[str, Any]) -> None:
        """`system/upstream`: how each way to Hermes stands now."""
        frame = encode("system", "upstream", states)
        for peer in self._hub:
            if peer.supports.turns:
                peer.send(frame)

    def titled(self, session_id: str, title: str) -> None:
        self.conversation(session_id, title=title)
