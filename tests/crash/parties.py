"""Senders that retry with their keys, and devices that come and go, against a relay that keeps dying."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidMessage, WebSocketException

from tests.crash.http import Http
from tests.crash.relay_process import RelayProcess
from tests.phone import OURS

GONE = (OSError, WebSocketException, InvalidHandshake, InvalidMessage, TimeoutError, EOFError)


async def pause() -> None:
    """A client's own short wait before it tries a dead server again."""
    await asyncio.sleep(0.05)


@dataclass
class Sender:
    """Sends 0, 1, 2 …, each until it is accepted, with the same key."""

    name: str
    relay: RelayProcess
    accepted: int = 0
    retries: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    async def run(self, enough: asyncio.Event) -> None:
        http = Http(self.relay.port, self.relay.operator)
        while not enough.is_set():
            text = f"{self.name}-{self.accepted}"
            try:
                status, answer = await http.post("/messages", {"text": text}, Idempotency_Key=text)
            except OSError:
                self.retries += 1
                await pause()
                continue
            if status == 202:
                self.accepted += 1
            else:
                code = answer["error"]["code"]
                self.refused[code] = self.refused.get(code, 0) + 1
                self.retries += 1
                await pause()
        http.close()


@dataclass
class Device:
    """Remembers what it was sent: number → text. `token` and its place survive its sockets, as on a phone."""

    name: str
    relay: RelayProcess
    token: str
    chance: random.Random
    sockets: int = 1  # opened at once under one instance: the last supersedes the others
    got: dict[int, str] = field(default_factory=dict)
    last: int = 0
    epoch: str | None = None
    doubled: int = 0  # a number with another content than before
    gaps: int = 0  # a number that is not the next
    resets: int = 0
    links: int = 0

    async def run(self, enough: asyncio.Event) -> None:
        while not enough.is_set():
            with suppress(*GONE):
                await self.connect_once(self.chance.randrange(50, 2000))
            await pause()

    async def connect_once(self, frames: int, until: int | None = None) -> None:
        """Read this many frames, or up to a number, then leave without a word."""
        opening = [self._open() for _ in range(self.sockets)]
        opened = [s for s in await asyncio.gather(*opening, return_exceptions=True) if not isinstance(s, BaseException)]
        if not opened:
            raise OSError("no socket")
        try:
            await self._read(opened[-1], frames, until)
        finally:
            for socket in opened:
                socket.transport.abort()

    async def _open(self) -> Any:
        socket = await connect(
            self.relay.url.replace("http", "ws") + "/ws",
            compression=None,
            open_timeout=5,
            ping_interval=None,
            max_queue=None,
        )
        resume = {"epoch": self.epoch, "after": self.last} if self.epoch else None
        payload = {"session_token": self.token, "supports": OURS, "instance": self.name, "resume": resume}
        await socket.send(json.dumps({"channel": "system", "type": "auth", "id": "a", "payload": payload}))
        return socket

    async def _read(self, socket: Any, frames: int, until: int | None) -> None:
        for _ in range(frames):
            frame = json.loads(await asyncio.wait_for(socket.recv(), 5))
            if frame["type"] == "auth.ok":
                self.epoch = frame["payload"]["epoch"]
                self.links += 1
            elif frame["type"] == "auth.fail":
                raise AssertionError(frame)
            elif frame["type"] == "reset":
                self.resets += 1
            elif "seq" in frame:
                self._take(frame)
                if self.last % 20 == 0:
                    ack = {"epoch": self.epoch, "seq": self.last}
                    await socket.send(json.dumps({"channel": "system", "type": "ack", "payload": ack}))
                if until is not None and self.last >= until:
                    return

    def _take(self, frame: dict[str, Any]) -> None:
        seq, text = frame["seq"], frame["payload"]["text"]
        if seq <= self.last:
            self.doubled += self.got[seq] != text  # sent again: it must be the same
            return
        self.gaps += seq != self.last + 1
        self.got[seq] = text
        self.last = seq
