from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from tests.bridge.phone_simulator import PhoneSimulator, simulated
from tests.phone import WAIT
from tests.relay import RunningRelay

Simulate = Callable[..., Any]


@pytest.fixture
async def simulate(relay: RunningRelay) -> AsyncIterator[Simulate]:
    """`await simulate(device_name=…)`: phones that last as long as the test."""
    async with AsyncExitStack() as stack:

        async def one(**auth: Any) -> PhoneSimulator:
            return await stack.enter_async_context(simulated(relay, **auth))

        yield one


@pytest.fixture
async def http(relay: RunningRelay) -> AsyncIterator[httpx.AsyncClient]:
    """The operator's."""
    async with httpx.AsyncClient(base_url=relay.url, headers=relay.operator(), timeout=WAIT) as http:
        yield http
