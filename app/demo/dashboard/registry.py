"""What is open on the dashboard, and who is connected to it. Gone with the process, as in Hermes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from app.demo.about import MODEL
from app.demo.agent import Agent
from app.demo.dashboard.live import Live
from app.demo.dashboard.socket import Socket


class Dashboard:
    """`reap_s`: how long a conversation that runs no turn stays open after its client has gone."""

    def __init__(self, agent: Agent, token: str, *, reap_s: float = 20) -> None:
        self.agent = agent
        self.token = token
        self.reap_s = reap_s
        self.sockets: set[Socket] = set()
        self._open: dict[str, Live] = {}

    def create(self, socket: Socket, *, title: str | None, model: str | None) -> Live:
        """Nothing is stored before its first turn or its title."""
        now = datetime.fromtimestamp(self.agent.clock.now(), UTC)
        return self._add(f"{now:%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:6]}", socket, title, model)

    def resume(self, stored_id: str, socket: Socket) -> tuple[Live, bool]:
        """The conversation, and whether it was open. Its events go to this client now. Raises Refusal."""
        stored_id = self.agent.history.tip(stored_id)
        for live in self._open.values():
            if live.stored_id == stored_id:
                live.socket = socket
                return live, True
        session = self.agent.history.get(stored_id)
        return self._add(session.id, socket, session.title, session.model), False

    def find(self, live_id: object) -> Live | None:
        return self._open.get(live_id) if isinstance(live_id, str) else None

    def live(self) -> list[Live]:
        return list(self._open.values())

    def forget(self, live: Live) -> None:
        self._open.pop(live.id, None)

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for a condition on what is open and on who is connected."""
        await self.agent.until(true)

    def connected(self, socket: Socket) -> None:
        self.sockets.add(socket)
        self.agent.changed()

    def left(self, socket: Socket) -> None:
        """Turns go on."""
        self.sockets.discard(socket)
        for live in self._open.values():
            if live.socket is socket:
                live.socket = None
                asyncio.get_running_loop().call_later(self.reap_s, self._reap, live)
        self.agent.changed()

    def hang_up(self) -> None:
        """Drop every connection."""
        for socket in self.sockets:
            socket.hang_up()

    def _reap(self, live: Live) -> None:
        if live.socket is None and live.turn is None:
            self.forget(live)
            self.agent.changed()

    def _add(self, stored_id: str, socket: Socket, title: str | None, model: str | None) -> Live:
        live = Live(self, uuid.uuid4().hex[:8], stored_id, model=model or MODEL, title=title)
        live.socket = socket
        self._open[live.id] = live
        return live
