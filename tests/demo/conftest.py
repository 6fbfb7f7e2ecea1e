"""A stand-in that listens, and a client that has a session there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from app.demo.stand_in import StandIn, serve_stand_in
from tests.demo.client import Client

KEY = "stand-in-key-0123456789"


@pytest.fixture
async def stand_in() -> AsyncIterator[StandIn]:
    async with serve_stand_in(KEY, delay_s=0) as served:
        yield served


@pytest.fixture
async def client(stand_in: StandIn) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=stand_in.url, headers=headers) as http:
        yield await Client.with_session(http)
