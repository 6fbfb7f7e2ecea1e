"""Two ways to a real Hermes: what it says of itself is enough to know it by either, and to tell it from another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.hermes.dashboard.dashboard import Dashboard
from app.hermes.hermes import Hermes
from app.hermes.upstream import Order
from app.settings import HermesSettings
from app.tasks import Supervisor
from tests.hermes.hermes_lab import Lab
from tests.hermes_client.dashboard_server import Heard, is_ready, lease
from tests.hermes_client.gates import Gate, gate, tls, trusted

pytestmark = pytest.mark.hermes


@dataclass
class Ways:
    api: tuple[Gate, Gate]
    dashboard: tuple[Gate, Gate]  # on loopback, and behind a login
    settings: HermesSettings


@pytest.fixture
async def ways(lab: Lab, tmp_path: Path) -> AsyncIterator[Ways]:
    async with AsyncExitStack() as stack:
        authority = stack.enter_context(trusted(tmp_path))

        async def both(local: str, remote: str) -> tuple[Gate, Gate]:
            near = await stack.enter_async_context(gate(local))
            return near, await stack.enter_async_context(gate(remote, tls(authority)))

        api, dashboard = await both(lab.url, lab.url), await both(lab.dashboard, lab.gated)
        given: dict[str, Any] = {
            "hermes_api_key": lab.key, "hermes_api_url": api[0].url, "hermes_api_remote_url": api[1].url,
            "hermes_dashboard_url": dashboard[0].url, "hermes_dashboard_remote_url": dashboard[1].url,
            "hermes_dashboard_username": lab.username, "hermes_dashboard_password": lab.password,
        }  # fmt: skip
        yield Ways(api, dashboard, HermesSettings(**given))


async def test_the_api_server_is_the_same_by_both_ways(ways: Ways) -> None:
    local, remote = ways.api
    async with Supervisor() as tasks, Hermes(ways.settings, tasks) as hermes:
        await hermes.probe()
        assert hermes.states()["api"] == {"state": "up", "version": "0.19.0", "route": "local"}
        for way in ways.api:
            assert way.asked_without_key() == {"GET /health"}
        assert "GET /health/detailed" in remote.requests
        order = Order("SAY:by either way")
        bound = await hermes.lease(await hermes.choose(order), (await hermes.api.create_session())["id"], order)
        await hermes.api.stream(bound, {"message": order.message}, lambda _: None, lambda: None)
        await local.shut()
        rows = await hermes.api.messages(bound.session_id)
        assert rows[-1]["content"] == "by either way"
        assert hermes.states()["api"]["route"] == "remote"
        assert not await hermes.api.restarted(bound)


async def test_the_dashboard_is_the_same_by_both_ways(ways: Ways) -> None:
    local, remote = ways.dashboard
    async with Supervisor() as tasks, Dashboard(ways.settings, tasks, titled=lambda *_: None) as dashboard:
        await is_ready(dashboard)
        assert dashboard.state() == {"state": "up", "version": "0.19.0", "route": "local"}
        assert "POST /auth/password-login" in remote.requests
        assert "POST /auth/password-login" not in local.requests
        bound, heard = await dashboard.bind(lease((await dashboard.create(Order("")))["id"])), Heard()
        await dashboard.run(bound, Order("SAY:here"), heard)
        await local.shut()
        await is_ready(dashboard, "down")
        await is_ready(dashboard)
        assert dashboard.state()["route"] == "remote"
        again = Heard()
        await dashboard.run(await dashboard.bind(lease(bound.session_id)), Order("SAY:and there"), again)
        assert (heard.text, again.text) == ("here", "and there")


async def test_what_listens_at_the_local_url_is_no_hermes(ways: Ways, lab: Lab) -> None:
    """Its dashboard at the API's port: it answers with JSON, and is not it."""
    local, _ = ways.api
    local.target = int(lab.dashboard.rpartition(":")[2])
    async with Supervisor() as tasks, Hermes(ways.settings, tasks) as hermes:
        await hermes.probe()
        assert hermes.states()["api"]["route"] == "remote"
        assert lab.key.encode() not in bytes(local.received)
