"""A relay in front of something that plays Hermes' API server, and a client of that API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.demo.stand_in import StandIn, serve_stand_in
from tests.api.conftest import client_of
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for

KEY = "hermes-key-0123456789"


@dataclass
class Passed:
    """`http` is a client of Hermes' API that knows the relay's address and the token of `phone`."""

    relay: RunningRelay
    phone: Phone
    http: httpx.AsyncClient

    def greeted(self) -> None:
        """As after a greeting: for a script that knows nothing but the request under test."""
        self.relay.relay.hermes.api.choice._chosen = True


@asynccontextmanager
async def passing(url: str, data_dir: Path, **environ: str) -> AsyncIterator[Passed]:
    settings = settings_for(data_dir, HERMES_API_URL=url, HERMES_API_KEY=KEY, **environ)
    async with running(settings) as relay:
        phone = await relay.connect()
        async with client_of(relay, headers={"Authorization": f"Bearer {phone.token}"}) as http:
            yield Passed(relay, phone, http)


@asynccontextmanager
async def over_stand_in(data_dir: Path, **options: Any) -> AsyncIterator[tuple[Passed, StandIn]]:
    async with (
        serve_stand_in(KEY, delay_s=0.001, **options) as hermes,
        passing(hermes.url, data_dir) as passed,
    ):
        yield passed, hermes
