"""A phone with a terminal: what it types, and what it is shown."""

from __future__ import annotations

import asyncio

import orjson

from deploy.bench.phone import Phone, dial
from deploy.bench.processes import Broken, Server
from deploy.bench.streams import HEAD
from deploy.bench.terminal import COLS, ROWS

GIVE_UP_SECONDS = 60.0
TAIL = 4096  # characters that are looked at for what is waited for


class Screen:
    """What a phone is shown. `size` counts the bytes of output, as UTF-8."""

    def __init__(self) -> None:
        self.size = 0
        self.text = ""
        self.news = asyncio.Event()
        self.frames: list[dict[str, object]] = []

    def on_text(self, frame: bytes) -> None:
        if b'"terminal.output"' in frame[:HEAD]:
            text = orjson.loads(frame)["payload"]["data"]
            self.size += len(text) if text.isascii() else len(text.encode())
            self.text = (self.text + text[-TAIL:])[-TAIL:]
        elif b'"terminal.' in frame[:HEAD] or b'"error"' in frame[:HEAD]:
            self.frames.append(orjson.loads(frame))
        self.news.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            while text not in self.text:
                await self.next()

    async def next(self) -> None:
        self.news.clear()
        await self.news.wait()


class Typist:
    """A phone attached to a session of its own."""

    def __init__(self, phone: Phone, screen: Screen, session: str) -> None:
        self.phone, self.screen, self.session = phone, screen, session

    def type(self, text: str) -> None:
        self.phone.send("terminal", "terminal.input", {"session_name": self.session, "data": text})

    async def kill(self) -> None:
        self.phone.send("terminal", "terminal.kill", {"session_name": self.session})
        async with asyncio.timeout(GIVE_UP_SECONDS):
            while not any(frame["type"] == "terminal.detached" for frame in self.screen.frames):
                await self.screen.next()
        self.phone.hang_up()


async def attach(relay: Server, token: str, session: str) -> tuple[Typist, dict[str, object]]:
    """Raises Broken if the relay does not attach it."""
    screen = Screen()
    phone = await dial(relay, token, screen.on_text)
    phone.send("terminal", "terminal.attach", {"session_name": session, "cols": COLS, "rows": ROWS})
    async with asyncio.timeout(GIVE_UP_SECONDS):
        while not screen.frames:
            await screen.next()
    if screen.frames[0]["type"] != "terminal.attached":
        raise Broken(f"the relay did not attach a terminal: {screen.frames[0]}")
    payload = screen.frames[0]["payload"]
    assert isinstance(payload, dict)
    return Typist(phone, screen, session), payload
