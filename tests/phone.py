"""A phone for tests: a real WebSocket client that speaks the wire and remembers what it was sent."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

WAIT = 15.0  # seconds until a test that waits for a frame has failed
OURS: dict[str, Any] = {"delivery": 1, "turns": 1, "typed_stream_events": True, "event_schema_version": 1}
OLDER: dict[str, Any] = {"typed_stream_events": True, "event_schema_version": 1}  # the Android app
_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Frame:
    channel: str
    type: str
    payload: dict[str, Any]
    id: str | None = None
    seq: int | None = None

    @classmethod
    def parse(cls, raw: str | bytes) -> Self:
        value = json.loads(raw)
        return cls(value["channel"], value["type"], value["payload"], value.get("id"), value.get("seq"))


@dataclass(slots=True)
class Phone:
    """One socket. `frames` is everything received, in order."""

    socket: ClientConnection
    auth: dict[str, Any] = field(default_factory=dict)  # payload of auth.ok
    frames: list[Frame] = field(default_factory=list)
    read: int = 0  # frames that `until` has gone past

    @property
    def token(self) -> str:
        return str(self.auth["session_token"])

    async def send(self, channel: str, type_: str, payload: Any = None, *, id: str | None = None, **fields: Any) -> str:
        """Returns the frame's id. Keywords are the payload where none is given."""
        id = id or f"f{next(_ids)}"
        body = fields if payload is None else payload
        await self.raw(json.dumps({"channel": channel, "type": type_, "id": id, "payload": body}))
        return id

    async def raw(self, message: str | bytes) -> None:
        await self.socket.send(message)

    async def next(self) -> Frame:
        """The next frame not gone past yet."""
        if self.read == len(self.frames):
            self.frames.append(Frame.parse(await asyncio.wait_for(self.socket.recv(), WAIT)))
        self.read += 1
        return self.frames[self.read - 1]

    async def until(self, type_: str, match: Callable[[Frame], bool] = lambda frame: True) -> Frame:
        """Goes past frames up to the first of this type that matches."""
        while True:
            frame = await self.next()
            if frame.type == type_ and match(frame):
                return frame

    async def event(self, name: str) -> Frame:
        """Up to the stream event of this name."""
        return await self.until("stream.event", lambda frame: frame.payload["event"] == name)

    async def ask(self, channel: str, type_: str, payload: Any = None, **fields: Any) -> Frame:
        """Send, and return the answer: the frame with the same id."""
        id = await self.send(channel, type_, payload, **fields)
        while True:
            frame = await self.next()
            if frame.id == id:
                return frame

    async def ping(self) -> None:
        """Returns when everything sent before has been answered."""
        answer = await self.ask("system", "ping", {"ts": 7})
        assert (answer.type, answer.payload) == ("pong", {"ts": 7})

    async def ack(self, seq: int) -> None:
        await self.send("system", "ack", epoch=self.auth["epoch"], seq=seq)

    async def hang_up(self) -> None:
        """Without a word, as a phone that leaves the network."""
        self.socket.transport.abort()
        await self.socket.wait_closed()

    async def closed(self) -> tuple[int | None, str | None]:
        """Read to the end: close code and reason."""
        try:
            while True:
                self.frames.append(Frame.parse(await asyncio.wait_for(self.socket.recv(), WAIT)))
        except ConnectionClosed:
            return self.socket.close_code, self.socket.close_reason


def credentials(**fields: Any) -> dict[str, Any]:
    return {"device_name": "Test phone", "supports": OURS} | {k: v for k, v in fields.items() if v is not None}


@asynccontextmanager
async def open_socket(url: str, path: str = "/ws", **options: Any) -> AsyncIterator[Phone]:
    """An upgraded socket that has said nothing yet. `url` is the relay's base URL."""
    async with connect(
        url.replace("http", "ws", 1) + path,
        compression=None,
        max_size=None,
        open_timeout=WAIT,
        close_timeout=1,
        **options,
    ) as socket:
        yield Phone(socket)


async def authenticate(phone: Phone, **fields: Any) -> Phone:
    """Raises AssertionError with the relay's answer if it was not auth.ok."""
    answer = await phone.ask("system", "auth", credentials(**fields))
    assert answer.type == "auth.ok", answer
    phone.auth = answer.payload
    return phone
