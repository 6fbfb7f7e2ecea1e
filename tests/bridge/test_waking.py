"""A phone that sleeps is woken, and the command waits for it until its deadline; then it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.bridge.commands import BY_NAME
from app.bridge.service import Bridge
from app.clock import ManualClock
from app.delivery.calls import RETURNS_S
from app.delivery.errors import DeviceOffline
from app.errors import Draining
from app.push.wake import AGAIN_S, MOST
from tests.bridge.phone_simulator import simulated
from tests.contracts.services import NtfyService
from tests.relay import RunningRelay, running, settings_for
from tests.servers import serving

TAP, PING = BY_NAME["tap"], BY_NAME["ping"]


class Sleeping:
    """A relay, a phone that has left it (its token in `token`), and the push service that would wake it."""

    def __init__(self, relay: RunningRelay, clock: ManualClock, ntfy: NtfyService, token: str) -> None:
        self.relay, self.clock, self.ntfy, self.token = relay, clock, ntfy, token

    @property
    def bridge(self) -> Bridge:
        return self.relay.relay.bridge

    def asking(self, **options: Any) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self.bridge.ask(TAP, {"x": 1}, caller="test", **options))

    async def woken(self, count: int = 1) -> None:
        """So many pushes have arrived."""
        async with asyncio.timeout(15):
            while len(self.ntfy.taken) < count:
                await self.relay.relay.db.read(lambda tx: None)


@pytest.fixture
async def sleeping(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Sleeping]:
    """With a push target, unless the test says `targets(False)`."""
    ntfy, clock = NtfyService(), ManualClock()
    async with serving(ntfy) as port:
        settings = settings_for(tmp_path, NTFY_URL=f"http://127.0.0.1:{port}", NTFY_TOKEN=ntfy.token)
        async with running(settings, clock=clock) as relay:
            phone = await relay.connect(device_name="Pixel")
            if getattr(request, "param", True):
                await phone.ask("system", "push.register", provider="ntfy")
            await phone.send("bridge", "bridge.status", battery=7)
            await phone.ping()
            await phone.hang_up()
            while relay.relay.bridge.is_online(phone.auth["device_id"]):
                await relay.relay.db.read(lambda tx: None)
            clock.advance(RETURNS_S)
            yield Sleeping(relay, clock, ntfy, phone.token)


async def test_it_is_woken_and_answers(sleeping: Sleeping) -> None:
    asking = sleeping.asking()
    await sleeping.woken()
    (push,) = sleeping.ntfy.taken
    assert (push["title"], push["message"]) == ("Talaria", "Your agent wants to use this phone")
    async with simulated(sleeping.relay, session_token=sleeping.token) as phone:
        assert (await asking).result == {"ok": True, "echo": {"x": 1}}
        assert len(phone.heard) == 1


async def test_after_its_deadline_a_command_is_gone(sleeping: Sleeping) -> None:
    with pytest.raises(DeviceOffline):
        await sleeping.asking(timeout_s=0.1)
    async with simulated(sleeping.relay, session_token=sleeping.token) as phone:
        await sleeping.bridge.ask(PING, {}, caller="test")
        assert [heard["path"] for heard in phone.heard] == ["/ping"]


async def test_a_burst_wakes_it_once(sleeping: Sleeping) -> None:
    asking = [sleeping.asking() for _ in range(5)]
    await sleeping.woken()
    sleeping.clock.advance(AGAIN_S - 1)
    asking.append(sleeping.asking())
    async with simulated(sleeping.relay, session_token=sleeping.token) as phone:
        await asyncio.gather(*asking)
        assert len(phone.heard) == 6
    assert len(sleeping.ntfy.taken) == 1


async def test_it_is_not_woken_without_end(sleeping: Sleeping) -> None:
    wake, device_id = sleeping.relay.relay.push.wake, sleeping.bridge.devices.latest_first()[0].device_id
    for _ in range(MOST[0]):
        assert await wake(device_id)
        sleeping.clock.advance(AGAIN_S)
    assert not await wake(device_id)
    await sleeping.woken(MOST[0])
    with pytest.raises(DeviceOffline):
        await sleeping.asking()
    sleeping.clock.advance(MOST[1])
    assert await wake(device_id)


async def test_ping_wakes_nobody(sleeping: Sleeping) -> None:
    with pytest.raises(DeviceOffline):
        await sleeping.bridge.ask(PING, {}, caller="test")
    assert sleeping.ntfy.taken == []


async def test_quiet_hours_hold_it_back(sleeping: Sleeping) -> None:
    quiet = {"quiet": {"from": "00:00", "to": "23:59", "zone": "UTC"}}
    async with httpx.AsyncClient(base_url=sleeping.relay.url) as http:
        bearer = {"Authorization": f"Bearer {sleeping.token}"}
        assert (await http.put("/push/preferences", json=quiet, headers=bearer)).status_code == 200
    with pytest.raises(DeviceOffline):
        await sleeping.asking()
    assert sleeping.ntfy.taken == []


@pytest.mark.parametrize("sleeping", [False], indirect=True)
async def test_what_nothing_can_wake_is_offline_at_once(sleeping: Sleeping) -> None:
    with pytest.raises(DeviceOffline, match="No phone connected"):
        await sleeping.asking()


async def test_one_that_has_just_left_is_waited_for(relay: RunningRelay) -> None:
    async with simulated(relay) as phone:
        await phone.phone.hang_up()
        while relay.relay.bridge.is_online(phone.device_id):
            await relay.relay.db.read(lambda tx: None)
        asking = asyncio.ensure_future(relay.relay.bridge.ask(TAP, {"x": 1}, caller="test"))
        async with simulated(relay, session_token=phone.phone.token):
            assert (await asking).status == 200


async def test_a_command_whose_caller_has_left_is_not_done(sleeping: Sleeping) -> None:
    bridge = sleeping.bridge
    async with httpx.AsyncClient(base_url=sleeping.relay.url, headers=sleeping.relay.operator()) as http:
        asking = asyncio.ensure_future(http.post("/tap", json={}))
        await sleeping.woken()
        asking.cancel()
        await asyncio.wait([asking])
    while bridge.activity.latest(1)[0]["decision"] == "pending":
        await sleeping.relay.relay.db.read(lambda tx: None)  # the relay tells nobody
    async with simulated(sleeping.relay, session_token=sleeping.token) as phone:
        await sleeping.bridge.ask(PING, {}, caller="test")
        assert [heard["path"] for heard in phone.heard] == ["/ping"]


async def test_a_restart_says_so_to_who_waits(sleeping: Sleeping) -> None:
    asking = sleeping.asking()
    await sleeping.woken()
    sleeping.bridge.drain()
    with pytest.raises(Draining):
        await asking
    with pytest.raises(Draining):
        await sleeping.asking()
