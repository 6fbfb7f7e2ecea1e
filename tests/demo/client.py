"""A client of the Hermes API that reads streams as their bytes come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx


@dataclass(frozen=True)
class Event:
    name: str
    data: dict[str, Any]


@dataclass
class Stream:
    """`pieces` are what came in one HTTP chunk each; `broken` is how the connection ended, if badly."""

    response: httpx.Response
    pieces: list[bytes] = field(default_factory=list)
    broken: httpx.HTTPError | None = None

    @property
    def comments(self) -> list[str]:
        return [block for block in self._blocks() if block.startswith(":")]

    @property
    def events(self) -> list[Event]:
        events = []
        for block in self._blocks():
            if not block.startswith(":"):
                name, data = block.split("\n")
                events.append(Event(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        return events

    @property
    def names(self) -> list[str]:
        """Event names, runs of the same name as one."""
        names = [event.name for event in self.events]
        return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]

    @property
    def text(self) -> str:
        return "".join(event.data["delta"] for event in self.all("assistant.delta"))

    def all(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def one(self, name: str) -> dict[str, Any]:
        (event,) = self.all(name)
        return event.data

    def _blocks(self) -> list[str]:
        return b"".join(self.pieces).decode().split("\n\n")[:-1]


@dataclass
class Client:
    http: httpx.AsyncClient
    session_id: str

    @classmethod
    async def with_session(cls, http: httpx.AsyncClient) -> Self:
        answer = await http.post("/api/sessions", json={})
        return cls(http, answer.json()["session"]["id"])

    @property
    def session(self) -> str:
        return f"/api/sessions/{self.session_id}"

    @asynccontextmanager
    async def begin(self, message: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The stream of a turn, to be read as far as the test likes."""
        async with self.http.stream("POST", f"{self.session}/chat/stream", json={"message": message}) as response:
            yield response.aiter_raw()

    async def ask(self, message: str) -> Stream:
        """Read a whole answer."""
        async with self.http.stream("POST", f"{self.session}/chat/stream", json={"message": message}) as response:
            stream = Stream(response)
            try:
                async for piece in response.aiter_raw():
                    stream.pieces.append(piece)
            except httpx.HTTPError as error:
                stream.broken = error
            return stream

    async def rows(self, session_id: str | None = None) -> list[dict[str, Any]]:
        answer = await self.http.get(f"/api/sessions/{session_id or self.session_id}/messages")
        data: list[dict[str, Any]] = answer.json()["data"]
        return data

    async def told(self) -> list[tuple[str, str]]:
        """Role and content of the rows."""
        return [(row["role"], row["content"]) for row in await self.rows()]
