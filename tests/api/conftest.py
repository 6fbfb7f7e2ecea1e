from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.relay import RunningRelay

PROXY = {"TRUSTED_PROXIES": "127.0.0.1/32"}  # the tests' own peer, so that X-Forwarded-For says who calls


@asynccontextmanager
async def client_of(relay: RunningRelay, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=relay.url, timeout=20, trust_env=False, **options) as http:
        yield http


@pytest.fixture
async def http(relay: RunningRelay) -> AsyncIterator[httpx.AsyncClient]:
    """Nobody in particular, on loopback."""
    async with client_of(relay) as http:
        yield http


@pytest.fixture
async def operator(relay: RunningRelay) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(relay, headers=relay.operator()) as http:
        yield http
