"""Another client of Hermes's dashboard, as its own page is one: bare JSON-RPC, nothing of ours between."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.hermes.hermes_lab import Lab
from tests.phone import WAIT


class Dashboard:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, itertools.count(1)
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result. Events that come first are kept."""
        id = next(self._ids)
        await self._socket.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        async with asyncio.timeout(WAIT):
            while True:
                said = json.loads(await self._socket.recv())
                if said.get("id") == id:
                    assert "result" in said, said
                    return said["result"]
                self.events.append(said["params"])

    async def live(self, stored: str) -> str:
        """The live id of a stored session, without attaching to it: its events stay where they go."""
        sessions = (await self.call("session.active_list"))["sessions"]
        return next(one["id"] for one in sessions if one["session_key"] == stored)


@asynccontextmanager
async def dashboard(lab: Lab) -> AsyncIterator[Dashboard]:
    url = lab.dashboard.replace("http", "ws", 1) + f"/api/ws?token={lab.token}"
    async with connect(url, compression=None, max_size=None, proxy=None) as socket:
        yield Dashboard(socket)
