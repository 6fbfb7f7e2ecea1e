"""A relay with a plugin on its link, and a phone that is paired."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.link import Plugin, linked
from tests.phone import Phone
from tests.relay import RunningRelay


@pytest.fixture
async def phone(relay: RunningRelay) -> Phone:
    phone = await relay.connect()
    await phone.until("synced")
    return phone


@pytest.fixture
async def plugin(relay: RunningRelay, phone: Phone) -> AsyncIterator[Plugin]:
    async with linked(relay.url, relay.relay.link.read()) as plugin:
        yield plugin
