"""The official client over real HTTP, in both of the ways that its protocol begins, and a phone that is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from tests.bridge.phone_simulator import PhoneSimulator, simulated
from tests.relay import RunningRelay

ERAS = ["legacy", "auto"]  # with a handshake, as Hermes 0.19 does it; and without


@pytest.fixture
async def simulator(relay: RunningRelay) -> AsyncIterator[PhoneSimulator]:
    async with simulated(relay) as simulator:
        yield simulator


@asynccontextmanager
async def connected(relay: RunningRelay, era: str = "auto") -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=relay.operator(), trust_env=False, timeout=30) as http,
        Client(streamable_http_client(f"{relay.url}/mcp", http_client=http), mode=era) as client,
    ):
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
    either: set[asyncio.Future[Any]] = {holding, opened}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    yield opened.result()
    over.set()
    await holding


def texts(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def code(result: CallToolResult) -> str:
    """The stable code that an error begins with."""
    assert result.is_error, result
    return texts(result).partition(":")[0]
