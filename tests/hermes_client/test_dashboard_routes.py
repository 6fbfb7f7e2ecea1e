"""Two ways to one dashboard: which is used, what each is sent, and how the socket comes back to the local one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.clock import ManualClock
from app.hermes.dashboard.dashboard import Dashboard
from app.hermes.dashboard.link import LOOK_S
from app.hermes.errors import UpstreamAuthRequired
from app.hermes.local_first import BACK_S
from app.hermes.upstream import Order
from tests.hermes_client.dashboard_server import (
    PASSWORD,
    USERNAME,
    FakeDashboard,
    Heard,
    Waits,
    faked,
    is_ready,
    lease,
    opened,
    soon,
)
from tests.hermes_client.gates import Gate, gate, tls
from tests.servers import Authority

LOGIN: dict[str, Any] = {"hermes_dashboard_username": USERNAME, "hermes_dashboard_password": PASSWORD}


@dataclass
class Scene:
    fake: FakeDashboard
    local: Gate
    remote: Gate
    stack: AsyncExitStack
    clock: ManualClock
    waits: Waits

    async def dashboard(self, *, ready: bool = True, **settings: Any) -> Dashboard:
        settings = LOGIN | {
            "hermes_dashboard_url": self.local.url, "hermes_dashboard_remote_url": self.remote.url
        } | settings  # fmt: skip
        opening = opened(self.fake, sleep=self.waits, ready=ready, clock=self.clock, **settings)
        return await self.stack.enter_async_context(opening)


@pytest.fixture
async def scene(authority: Authority) -> AsyncIterator[Scene]:
    async with faked() as fake, AsyncExitStack() as stack:
        fake.gated = True
        local = await stack.enter_async_context(gate(fake.url))
        remote = await stack.enter_async_context(gate(fake.url, tls(authority)))
        yield Scene(fake, local, remote, stack, ManualClock(), Waits())


def used(dashboard: Dashboard) -> str:
    name: str = dashboard.state()["route"]
    return name


async def lose_local(scene: Scene, dashboard: Dashboard) -> None:
    await dashboard._link.rows()  # the socket was of use: the relay is back at once
    sockets = len(scene.fake.sockets)
    await scene.local.shut()
    await scene.fake.until(lambda: len(scene.fake.sockets) > sockets)
    await is_ready(dashboard)


async def look(scene: Scene) -> None:
    """The relay has looked which one to use."""
    await scene.waits.over(LOOK_S)
    await scene.waits.begun(LOOK_S, scene.waits.asked.count(LOOK_S) + 1)


async def test_the_local_one_is_used_and_the_remote_one_at_once_when_it_is_gone(scene: Scene) -> None:
    dashboard = await scene.dashboard()
    assert used(dashboard) == "local"
    await lose_local(scene, dashboard)
    assert used(dashboard) == "remote"
    scene.fake.rows["s"] = [{"id": 1}]
    assert await dashboard.messages("s") == [{"id": 1}]


async def test_each_url_has_a_login_of_its_own(scene: Scene) -> None:
    dashboard = await scene.dashboard()
    await lose_local(scene, dashboard)
    local, remote = (bytes(way.received).decode("latin-1") for way in (scene.local, scene.remote))
    for way in (local, remote):
        assert "POST /auth/password-login" in way
        assert way.index("GET /api/status") < way.index("POST /auth/password-login")
    cookies = [{line for line in way.split("\r\n") if line.lower().startswith("cookie:")} for way in (local, remote)]
    assert all(cookies)
    assert not cookies[0] & cookies[1]


async def test_it_comes_back_when_no_turn_is_in_the_way(scene: Scene) -> None:
    dashboard = await scene.dashboard()
    await lose_local(scene, dashboard)
    scene.fake.answers["session.resume"] = lambda params: {"session_id": "live1", "session_key": "stored1"}
    hearer = Heard()
    turn = soon(dashboard.run(await dashboard.bind(lease()), Order("hi"), hearer))
    await scene.fake.called("prompt.submit")
    await scene.local.open()
    await look(scene)
    scene.clock.advance(BACK_S)
    await look(scene)
    assert used(dashboard) == "remote"
    await scene.fake.event("message.start")
    await scene.fake.event("message.complete", text="done", status="complete")
    await turn
    sockets = len(scene.fake.sockets)
    await look(scene)
    await scene.fake.until(lambda: len(scene.fake.sockets) > sockets)
    await is_ready(dashboard)
    assert used(dashboard) == "local"


async def test_a_dashboard_of_another_hermes_is_not_used(scene: Scene) -> None:
    async with faked() as other:
        other.gated, other.stored = True, ["another"]
        dashboard = await scene.dashboard(hermes_dashboard_url=other.url)
        assert used(dashboard) == "remote"
        assert dashboard.state()["code"] == "upstream_differs"


async def test_no_password_goes_to_a_certificate_that_nobody_vouches_for(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "strange").mkdir()
    async with gate(scene.fake.url, tls(Authority(tmp_path / "strange"))) as stranger:
        dashboard = await scene.dashboard(
            ready=False, hermes_dashboard_url="", hermes_dashboard_remote_url=stranger.url
        )
        await is_ready(dashboard, "auth_required")
        assert dashboard.state()["code"] == "upstream_untrusted"
        assert bytes(stranger.received) == b""


async def test_a_password_that_was_changed_in_hermes(scene: Scene) -> None:
    dashboard = await scene.dashboard(hermes_dashboard_remote_url="")
    scene.fake.password = "another-password"
    scene.fake.cookies.clear()
    with pytest.raises(UpstreamAuthRequired, match="TALARIA_HERMES_DASHBOARD_PASSWORD"):
        await dashboard.messages("s")
    sent = len(scene.fake.requests)
    with pytest.raises(UpstreamAuthRequired):
        await dashboard.messages("s")
    assert len(scene.fake.requests) == sent  # no cookie is left to send, and no password is tried again
