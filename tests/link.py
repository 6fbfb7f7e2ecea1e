"""A plugin for tests: speaks the agent link over a real socket, with a spool of its own, and does what it is told."""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.phone import WAIT

Json = dict[str, Any]
CURSOR = " ▉"
COMMANDS = [{"name": "new", "description": "Start a new session", "usage": "[name]"}, {"name": "stop"}]
_ids = itertools.count(1)


@dataclass
class Spool:
    """What survives the plugin's process: frames without an answer, and the inbound ids that were taken."""

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    last: int = 0
    frames: dict[int, Json] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)

    def add(self, type_: str, **said: Any) -> Json:
        self.last += 1
        frame = {"type": type_, "n": self.last, **said}
        self.frames[self.last] = frame
        return frame


@dataclass
class Plugin:
    """One connection. `heard` is all that came, in order."""

    socket: ClientConnection
    spool: Spool
    welcome: Json = field(default_factory=dict)
    heard: list[Json] = field(default_factory=list)
    read: int = 0  # frames that `until` has gone past

    async def send(self, type_: str, **said: Any) -> None:
        await self.socket.send(json.dumps({"type": type_, **said}))

    async def next(self) -> Json:
        if self.read == len(self.heard):
            frame = json.loads(await asyncio.wait_for(self.socket.recv(), WAIT))
            self.heard.append(frame)
            if frame["type"] in ("ok", "no"):
                self.spool.frames.pop(frame["n"], None)
        self.read += 1
        return self.heard[self.read - 1]

    async def until(self, type_: str, match: Callable[[Json], bool] = lambda frame: True) -> Json:
        """Goes past frames up to the first of this type that matches."""
        while True:
            frame = await self.next()
            if frame["type"] == type_ and match(frame):
                return frame

    async def hello(self, **said: Any) -> Json:
        """Says hello and sends what its spool has. Returns the welcome."""
        about = {"version": 1, "plugin": "0.1", "hermes": "0.19.0", "spool": self.spool.id, "platform": "talaria"}
        await self.send("hello", **(about | {"commands": COMMANDS, "restarted": False} | said))
        self.welcome = await self.until("welcome")
        for n in [n for n in self.spool.frames if n <= self.welcome["received"]]:
            del self.spool.frames[n]
        for frame in list(self.spool.frames.values()):
            await self.socket.send(json.dumps(frame))
        return self.welcome

    async def durable(self, type_: str, **said: Any) -> Json:
        """Spool, send, and return the verdict."""
        frame = self.spool.add(type_, **said)
        await self.socket.send(json.dumps(frame))
        while True:
            answer = await self.next()
            if answer["type"] in ("ok", "no") and answer["n"] == frame["n"]:
                return answer

    async def message(self, text: str, chat_id: str = "home", **said: Any) -> Json:
        said.setdefault("local_id", f"m{next(_ids)}")
        return await self.durable("message", chat_id=chat_id, text=text, final=True, **({"source": "reply"} | said))

    async def update(self, local_id: str, text: str, chat_id: str = "home", **said: Any) -> None:
        await self.send("update", chat_id=chat_id, local_id=local_id, text=text, **said)

    async def take(self) -> Json:
        """The next inbound message, taken as Hermes begins with it. A copy is not taken again."""
        while True:
            inbound = await self.until("inbound")
            await self.send("taken", inbound_id=inbound["inbound_id"])
            if inbound["inbound_id"] not in self.spool.taken:
                self.spool.taken.append(inbound["inbound_id"])
                return inbound

    async def done(self, inbound: Json, outcome: str = "success") -> Json:
        return await self.durable("done", inbound_id=inbound["inbound_id"], outcome=outcome)

    async def answered(self, result: str = "ok", **said: Any) -> Json:
        """Waits for an answer to an ask and confirms it; returns the answer."""
        answer = await self.until("answer")
        await self.send("answered", answer_id=answer["answer_id"], result=result, **said)
        return answer

    async def hang_up(self) -> None:
        """Without a word."""
        self.socket.transport.abort()
        await self.socket.wait_closed()

    async def closed(self) -> tuple[int | None, str | None]:
        """Read to the end: close code and reason."""
        try:
            while True:
                self.heard.append(json.loads(await asyncio.wait_for(self.socket.recv(), WAIT)))
        except ConnectionClosed:
            return self.socket.close_code, self.socket.close_reason


@asynccontextmanager
async def open_link(url: str, token: str | None, spool: Spool | None = None) -> AsyncIterator[Plugin]:
    """An upgraded socket that has said nothing yet. `url` is the relay's base URL."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    address = url.replace("http", "ws", 1) + "/agent/link"
    async with connect(
        address, additional_headers=headers, compression=None, max_size=None, open_timeout=WAIT, close_timeout=1
    ) as socket:
        yield Plugin(socket, spool or Spool())


@asynccontextmanager
async def linked(url: str, token: str, spool: Spool | None = None, **hello: Any) -> AsyncIterator[Plugin]:
    """A plugin that was welcomed."""
    async with open_link(url, token, spool) as plugin:
        await plugin.hello(**hello)
        yield plugin
