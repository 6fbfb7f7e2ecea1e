"""A client of the dashboard's WebSocket that keeps every event in the order in which it came."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from app.demo.stand_in import StandIn

Json = dict[str, Any]


class Fault(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


@dataclass
class Board:
    """`events` are {type, session_id, payload?}. `session_id` is the open conversation that calls are about."""

    socket: ClientConnection
    session_id: str = ""
    stored_id: str = ""
    events: list[Json] = field(default_factory=list)
    _read: int = 0  # events that `until` has passed
    _calls: int = 0

    async def call(self, method: str, **params: Any) -> Json:
        """The result. Raises Fault. Without a session_id it is about the conversation that was opened."""
        self._calls += 1
        if self.session_id and method not in ("session.create", "session.active_list"):
            params = {"session_id": self.session_id} | params
        await self.socket.send(json.dumps({"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params}))
        while True:
            frame = await self._receive()
            if frame.get("id") == self._calls:
                if "error" in frame:
                    raise Fault(frame["error"])
                result: Json = frame["result"]
                return result

    async def create(self, **params: Any) -> Json:
        created = await self.call("session.create", cols=80, **params)
        self.session_id, self.stored_id = created["session_id"], created["stored_session_id"]
        return created

    async def resume(self, stored_id: str) -> Json:
        resumed = await self.call("session.resume", session_id=stored_id, cols=80)
        self.session_id, self.stored_id = resumed["session_id"], resumed["session_key"]
        return resumed

    async def submit(self, text: str) -> str:
        return str((await self.call("prompt.submit", text=text))["status"])

    async def until(self, type_: str, is_it: Callable[[Json], bool] = lambda _: True) -> Json:
        """The payload of the next such event after those passed before."""
        while True:
            while self._read < len(self.events):
                event = self.events[self._read]
                self._read += 1
                if event["type"] == type_ and is_it(event.get("payload", {})):
                    payload: Json = event.get("payload", {})
                    return payload
            await self._receive()

    async def idle(self) -> None:
        await self.until("session.info", lambda info: not info["running"])

    async def ask(self, text: str) -> Json:
        """Play a whole turn that asks nothing. The payload of its end."""
        await self.submit(text)
        complete = await self.until("message.complete")
        await self.idle()
        return complete

    def said(self, type_: str = "message.delta") -> str:
        return "".join(event["payload"]["text"] for event in self.events if event["type"] == type_)

    async def _receive(self) -> Json:
        frame: Json = json.loads(await self.socket.recv())
        if frame.get("method") == "event":
            self.events.append(frame["params"])
        return frame


def address(stand_in: StandIn, token: str | None = None) -> str:
    token = stand_in.dashboard_token if token is None else token
    return f"{stand_in.dashboard_url.replace('http', 'ws', 1)}/api/ws?token={token}"


@asynccontextmanager
async def board(stand_in: StandIn) -> AsyncIterator[Board]:
    """A client that has been told that the gateway is ready."""
    async with connect(address(stand_in), compression=None, proxy=None, max_size=None) as socket:
        opened = Board(socket)
        await opened.until("gateway.ready")
        yield opened
