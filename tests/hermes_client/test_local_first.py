"""The local route while it is healthy, else the remote one: over real HTTP and TLS, to a served stand-in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.clock import ManualClock
from app.demo.agent import Agent
from app.demo.stand_in import StandIn, serve_stand_in
from app.errors import RelayError
from app.hermes.errors import StreamBroken, UpstreamAuthRequired, UpstreamDiffers, UpstreamUntrusted
from app.hermes.hermes import Hermes
from app.hermes.lease import Lease, ProcessMark
from app.hermes.local_first import BACK_S, Likeness
from app.hermes.routes import Route
from app.hermes.upstream import Order
from app.settings import HermesSettings
from app.tasks import Supervisor
from app.wire.sse import SseEvent
from tests.hermes_client.canned import answer, canned
from tests.hermes_client.gates import Gate, gate, tls
from tests.servers import Authority

KEY = "stand-in-key-0123456789"
NEVER_S = 10


@dataclass
class Scene:
    """One Hermes with two ways to it."""

    stand_in: StandIn
    local: Gate
    remote: Gate
    stack: AsyncExitStack
    clock: ManualClock

    async def hermes(self, **urls: str) -> Hermes:
        """Not watched: the test says when it looks."""
        urls = {"hermes_api_url": self.local.url, "hermes_api_remote_url": self.remote.url} | urls
        tasks = await self.stack.enter_async_context(Supervisor())
        hermes = Hermes(HermesSettings(hermes_api_key=KEY, **urls), tasks, clock=self.clock)  # type: ignore[arg-type]
        self.stack.push_async_callback(hermes.api.close)
        return hermes

    async def another(self, key: str = KEY) -> StandIn:
        """A Hermes that is not this one, with a conversation of its own."""
        other = await self.stack.enter_async_context(serve_stand_in(key, agent=Agent(delay_s=0)))
        other.agent.history.create()
        return other


@asynccontextmanager
async def set_up(authority: Authority) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        stand_in = await stack.enter_async_context(serve_stand_in(KEY, agent=Agent(delay_s=0)))
        stand_in.agent.history.create()
        local = await stack.enter_async_context(gate(stand_in.url))
        remote = await stack.enter_async_context(gate(stand_in.url, tls(authority)))
        yield Scene(stand_in, local, remote, stack, ManualClock())


@pytest.fixture
async def scene(authority: Authority) -> AsyncIterator[Scene]:
    async with set_up(authority) as scene:
        yield scene


def used(hermes: Hermes) -> str:
    name: str = hermes.states()["api"]["route"]
    return name


async def lease_of(hermes: Hermes) -> Lease:
    order = Order("hi")
    session = await hermes.api.create_session()
    return await hermes.lease(await hermes.choose(order), session["id"], order)


# choosing


async def test_the_local_one_is_used_once_both_are_the_same(scene: Scene) -> None:
    hermes = await scene.hermes()
    await hermes.probe()
    assert used(hermes) == "local"
    assert scene.remote.requests == ["GET /health", "GET /api/sessions?limit=100", "GET /health/detailed"]
    for way in (scene.local, scene.remote):
        assert way.requests[0] == "GET /health"
        assert way.asked_without_key() == {"GET /health"}
    await hermes.probe()
    assert len(scene.remote.requests) == 3  # what was compared is left alone


async def test_a_call_goes_by_the_remote_one_at_once_and_nobody_is_alarmed(scene: Scene) -> None:
    hermes = await scene.hermes()
    await hermes.probe()
    await scene.local.shut()
    assert (await hermes.api.create_session())["id"]
    assert hermes.states()["api"] == {"state": "up", "version": "0.19.0", "route": "remote"}


async def test_a_start_without_the_local_one(scene: Scene) -> None:
    await scene.local.shut()
    hermes = await scene.hermes()
    assert (await hermes.api.create_session())["id"]
    await hermes.probe()
    assert used(hermes) == "remote"


async def test_a_start_without_the_remote_one_compares_when_it_comes(scene: Scene) -> None:
    await scene.remote.shut()
    hermes = await scene.hermes()
    await hermes.probe()
    assert used(hermes) == "local"
    await scene.remote.open()
    await hermes.probe()
    assert "GET /health/detailed" in scene.remote.requests
    assert used(hermes) == "local"


async def test_without_both_it_is_down_and_comes_back_with_either(scene: Scene) -> None:
    hermes = await scene.hermes()
    await hermes.probe()
    await scene.local.shut()
    await scene.remote.shut()
    said = await hermes.probe()
    assert said["state"] == "down"
    assert "TALARIA_HERMES_API_URL and TALARIA_HERMES_API_REMOTE_URL" in said["message"]
    await scene.remote.open()
    await hermes.probe()
    assert used(hermes) == "remote"


async def test_one_that_flaps_is_left_alone(scene: Scene) -> None:
    hermes = await scene.hermes()
    await hermes.probe()
    await scene.local.shut()
    await hermes.probe()
    assert used(hermes) == "remote"
    for _ in range(3):
        await scene.local.open()
        await hermes.probe()
        scene.clock.advance(BACK_S - 1)
        await hermes.probe()
        assert used(hermes) == "remote"
        await scene.local.shut()
        await hermes.probe()
        scene.clock.advance(1)
    await scene.local.open()
    await hermes.probe()
    scene.clock.advance(BACK_S)
    await hermes.probe()
    assert used(hermes) == "local"


async def test_it_is_taken_before_its_time_when_the_remote_one_fails(scene: Scene) -> None:
    hermes = await scene.hermes()
    await scene.local.shut()
    await hermes.probe()
    await scene.local.open()
    await scene.remote.shut()
    assert (await hermes.api.create_session())["id"]
    await hermes.probe()
    assert used(hermes) == "local"


async def test_devices_hear_of_the_route_that_is_used(scene: Scene) -> None:
    heard: list[str] = []
    async with Supervisor() as tasks:
        settings = HermesSettings(
            hermes_api_key=KEY, hermes_api_url=scene.local.url, hermes_api_remote_url=scene.remote.url  # type: ignore[arg-type]
        )  # fmt: skip
        hermes = Hermes(settings, tasks, changed=lambda: heard.append(str(hermes.states()["api"].get("route"))))
        await hermes.probe()
        await scene.local.shut()
        await hermes.api.create_session()
        await hermes.api.close()
    assert heard == ["local", "remote"]


async def test_of_many_that_fail_together_one_looks(scene: Scene) -> None:
    hermes = await scene.hermes()
    await hermes.probe()
    route = hermes.api.route()
    await scene.local.shut()
    before = scene.remote.requests.count("GET /health")
    found = await asyncio.gather(*(hermes.api.choice.elsewhere(route) for _ in range(20)))
    assert {other.name for other in found if other is not None} == {"remote"}
    assert scene.remote.requests.count("GET /health") == before + 1
    remote = hermes.api.route()
    await scene.remote.shut()
    greeted = 0
    greet = hermes.api.choice._greet

    async def counted(route: Route) -> str | None:
        nonlocal greeted
        greeted += 1
        return await greet(route)

    hermes.api.choice._greet = counted
    assert set(await asyncio.gather(*(hermes.api.choice.elsewhere(remote) for _ in range(20)))) == {None}
    assert greeted == 2  # one of each


# a turn


async def test_the_local_one_dies_in_mid_stream(scene: Scene) -> None:
    """The stream is the lease's: it breaks, and is not begun again elsewhere. What comes after goes elsewhere."""
    scene.stand_in.agent.gate.clear()
    hermes = await scene.hermes()
    await hermes.probe()
    lease = await lease_of(hermes)
    begun = asyncio.Event()
    heard: list[SseEvent] = []
    async with asyncio.timeout(NEVER_S), Supervisor() as tasks:
        turn = tasks.start(hermes.api.stream(lease, {"message": "hi"}, heard.extend, begun.set), "turn")
        await begun.wait()
        await scene.local.shut()
        with pytest.raises(StreamBroken):
            await turn
    scene.stand_in.agent.gate.set()
    assert await hermes.api.session(lease.session_id)
    assert hermes.api.route().name == "remote"
    assert not await hermes.api.restarted(lease)  # the same process, by the other way
    submits = [line for line in scene.local.requests + scene.remote.requests if line.endswith("/chat/stream")]
    assert len(submits) == 1


async def test_a_lease_stays_on_its_route_when_another_is_chosen(scene: Scene) -> None:
    await scene.local.shut()
    hermes = await scene.hermes()
    await hermes.probe()
    lease = await lease_of(hermes)
    await scene.local.open()
    await hermes.probe()
    scene.clock.advance(BACK_S)
    await hermes.probe()
    assert used(hermes) == "local"
    await hermes.api.stream(lease, {"message": "hi"}, lambda _: None, lambda: None)
    assert f"POST {lease.endpoint}" in scene.remote.requests
    assert f"POST {lease.endpoint}" not in scene.local.requests
    await hermes.api.stream(await lease_of(hermes), {"message": "hi"}, lambda _: None, lambda: None)
    assert any(line.endswith("/chat/stream") for line in scene.local.requests)


# the same Hermes


async def test_a_local_hermes_that_is_another_is_not_used(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    other = await scene.another()
    hermes = await scene.hermes(hermes_api_url=other.url)
    await hermes.probe()
    assert used(hermes) == "remote"
    assert hermes.states()["api"]["code"] == "upstream_differs"
    await hermes.probe()
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        "the local and the remote URL lead to different Hermes"
    ]


async def test_a_local_hermes_that_has_become_another_is_not_gone_back_to(scene: Scene) -> None:
    hermes = await scene.hermes()
    await hermes.probe()
    await scene.local.shut()
    await hermes.probe()
    scene.local.target = int((await scene.another()).url.rpartition(":")[2])
    await scene.local.open()
    await hermes.probe()
    scene.clock.advance(BACK_S)
    await hermes.probe()
    assert used(hermes) == "remote"
    assert hermes.states()["api"]["code"] == "upstream_differs"


async def test_a_remote_hermes_that_is_another_is_no_way_out(scene: Scene) -> None:
    hermes = await scene.hermes()
    await hermes.probe()
    await scene.local.shut()
    scene.remote.target = int((await scene.another()).url.rpartition(":")[2])
    await scene.remote.shut()
    await scene.remote.open()
    with pytest.raises(UpstreamDiffers):
        await hermes.api.capabilities(fresh=True)
    said = await hermes.probe()
    assert (said["state"], said["code"]) == ("auth_required", "upstream_differs")


async def test_a_hermes_that_restarted_is_still_the_same(scene: Scene) -> None:
    hermes = await scene.hermes()
    await hermes.probe()
    await scene.local.shut()
    again = await scene.stack.enter_async_context(serve_stand_in(KEY, agent=Agent(delay_s=0)))
    again.agent.history.create(session_id=scene.stand_in.agent.history.page(1, 0, None)[0][0].id)
    scene.remote.target = int(again.url.rpartition(":")[2])
    await scene.remote.shut()
    await scene.remote.open()
    await hermes.probe()
    assert used(hermes) == "remote"


async def test_a_local_hermes_with_another_key(scene: Scene) -> None:
    other = await scene.another("another-key-0123456789")
    hermes = await scene.hermes(hermes_api_url=other.url)
    await hermes.probe()
    assert used(hermes) == "remote"
    neither = await scene.hermes(hermes_api_url=other.url, hermes_api_remote_url=(await scene.another("k" * 16)).url)
    with pytest.raises(UpstreamAuthRequired):
        await neither.api.capabilities()


NOW, THEN = ProcessMark(1, "now"), ProcessMark(1, "then")


@pytest.mark.parametrize(
    ("one", "other", "same", "later"),
    [
        (Likeness(NOW, frozenset("a")), Likeness(NOW, frozenset("b")), True, True),
        (Likeness(NOW, frozenset("a")), Likeness(THEN, frozenset("a")), False, True),  # a copy; or a restart
        (Likeness(NOW, frozenset("a")), Likeness(THEN, frozenset("b")), False, False),
        (Likeness(NOW, frozenset()), Likeness(THEN, frozenset("b")), False, True),
        (Likeness(NOW, frozenset("a")), Likeness(THEN, frozenset()), False, False),
        (Likeness(None, frozenset("ab")), Likeness(NOW, frozenset("b")), True, True),
        (Likeness(None, frozenset("a")), Likeness(None, frozenset("b")), False, False),
        (Likeness(None, frozenset()), Likeness(None, frozenset()), True, True),
        (Likeness(ProcessMark(1, None), frozenset("a")), Likeness(ProcessMark(1, None), frozenset("b")), False, False),
    ],
)
def test_what_makes_two_the_same(one: Likeness, other: Likeness, same: bool, later: bool) -> None:
    assert one.is_same(other) is same
    assert one.may_have_become(other) is later


# where no key goes


async def test_no_key_goes_to_a_certificate_that_nobody_vouches_for(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "strange").mkdir()
    stranger = await scene.stack.enter_async_context(gate(scene.stand_in.url, tls(Authority(tmp_path / "strange"))))
    hermes = await scene.hermes(hermes_api_remote_url=stranger.url)
    await hermes.probe()
    assert used(hermes) == "local"
    await scene.local.shut()
    with pytest.raises(RelayError):
        await hermes.api.create_session()
    await hermes.probe()
    assert bytes(stranger.received) == b""
    alone = await scene.hermes(hermes_api_url="", hermes_api_remote_url=stranger.url)
    said = await alone.probe()
    assert (said["state"], said["code"]) == ("auth_required", "upstream_untrusted")
    with pytest.raises(UpstreamUntrusted):
        await alone.api.create_session()
    assert bytes(stranger.received) == b""


@pytest.mark.parametrize(
    "said",
    [answer("200 OK", b'{"status":"ok","platform":"talaria"}'), answer("200 OK", b"<html>"), answer("302 Found", b"")],
)
async def test_no_key_goes_to_what_does_not_say_that_it_is_hermes(scene: Scene, said: bytes) -> None:
    async with canned(said) as stranger:
        for remote in (scene.remote.url, ""):
            url = f"http://127.0.0.1:{stranger.port}"
            hermes = await scene.hermes(hermes_api_url=url, hermes_api_remote_url=remote)
            if remote:
                assert (await hermes.api.create_session())["id"]
                assert hermes.api.route().name == "remote"
            else:
                with pytest.raises(RelayError):
                    await hermes.api.create_session()
        assert stranger.requests
        assert not [request for request in stranger.requests if KEY.encode() in request]
