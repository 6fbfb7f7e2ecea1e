"""A relay, a phone that is asked to do things, and the official client over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from tests.phone import Frame, Phone
from tests.relay import RunningRelay

STATUS = {"device": {"name": "Pixel 9"}, "bridge": {"master_enabled": True}}
ERAS = ["legacy", "auto"]  # with a handshake, as Hermes speaks; and without one

Reply = dict[str, Any] | tuple[int, Any] | Callable[[dict[str, Any]], Awaitable[Any]] | None


@dataclass
class Simulator:
    """A phone on the bridge. `replies` by path: a result, (status, result), a coroutine function of the arguments, or
    None for silence.
    """

    phone: Phone
    replies: dict[str, Reply] = field(default_factory=dict)
    asked: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    heard: asyncio.Queue[Frame] = field(default_factory=asyncio.Queue)  # everything else

    @property
    def device_id(self) -> str:
        return str(self.phone.auth["device_id"])

    async def serve(self) -> None:
        while True:
            with suppress(TimeoutError):
                frame = await self.phone.next()
                if frame.type == "bridge.command":
                    await self._obey(frame.payload)
                else:
                    self.heard.put_nowait(frame)

    async def until(self, type_: str) -> Frame:
        async with asyncio.timeout(15):
            while (frame := await self.heard.get()).type != type_:
                pass
        return frame

    async def _obey(self, command: dict[str, Any]) -> None:
        self.asked.put_nowait(command)
        reply = self.replies.get(command["path"], {"ok": True})
        if callable(reply):
            reply = await reply(command["body"])
        if reply is not None:
            status, result = reply if isinstance(reply, tuple) else (200, reply)
            await self.phone.send(
                "bridge", "bridge.response", request_id=command["request_id"], status=status, result=result
            )


@asynccontextmanager
async def on_the_bridge(relay: RunningRelay, **fields: Any) -> AsyncIterator[Simulator]:
    found = Simulator(await relay.connect(**fields))
    await found.phone.send("bridge", "bridge.status", STATUS)
    await found.phone.ping()
    serving = relay.relay.tasks.start(found.serve(), "simulator")
    yield found
    serving.cancel()


@pytest.fixture
async def simulator(relay: RunningRelay) -> AsyncIterator[Simulator]:
    async with on_the_bridge(relay) as found:
        yield found


@asynccontextmanager
async def connected(relay: RunningRelay, era: str = "auto", **headers: str) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=relay.operator() | headers, trust_env=False, timeout=30) as http:
        async with Client(streamable_http_client(f"{relay.url}/mcp", http_client=http), mode=era) as client:
            yield client


@pytest.fixture(params=ERAS)
async def client(request: pytest.FixtureRequest, relay: RunningRelay) -> AsyncIterator[Client]:
    """Open in a task of its own: what the SDK enters has to be left in the same one."""
    opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold() -> None:
        async with connected(relay, request.param) as client:
            opened.set_result(client)
            await over.wait()

    holding = relay.relay.tasks.start(hold(), "client")
    await asyncio.wait({holding, opened}, return_when=asyncio.FIRST_COMPLETED)
    yield opened.result()
    over.set()
    await holding


def texts(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def code(result: CallToolResult) -> str:
    """The stable code that an error begins with."""
    assert result.is_error, result
    return texts(result).partition(":")[0]
