"""The API of Hermes against a served stand-in, and answers that no Hermes should give."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.demo.agent import Agent
from app.demo.stand_in import StandIn, serve_stand_in
from app.errors import RelayError
from app.hermes import calls
from app.hermes import hermes as hermes_module
from app.hermes.api import HermesApi
from app.hermes.errors import (
    RouteMissing,
    SessionNotFound,
    TitleRefused,
    UpstreamAuthRequired,
    UpstreamInvalid,
    UpstreamOff,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
    UpstreamUnsupported,
)
from app.hermes.hermes import Hermes
from app.hermes.lease import Lease, ProcessMark, RowMarks
from app.hermes.upstream import Order
from app.settings import HermesSettings
from app.tasks import Supervisor
from tests.hermes_client.canned import answer, canned

KEY = "stand-in-key-0123456789"
HEALTH = answer("200 OK", b'{"status":"ok","version":"0.19.0"}')


def settings(url: str, key: str = KEY) -> HermesSettings:
    return HermesSettings(hermes_api_url=url, hermes_api_key=key)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(url: str, key: str = KEY) -> AsyncIterator[Hermes]:
    async with Supervisor() as tasks, Hermes(settings(url, key), tasks) as hermes:
        yield hermes


async def leased(hermes: Hermes, session_id: str) -> Lease:
    order = Order("hi")
    return await hermes.lease(await hermes.choose(order), session_id, order)


@pytest.fixture
async def stand_in() -> AsyncIterator[StandIn]:
    async with serve_stand_in(KEY, agent=Agent(delay_s=0)) as served:
        yield served


@pytest.fixture
async def hermes(stand_in: StandIn) -> AsyncIterator[Hermes]:
    async with opened(stand_in.url) as hermes:
        yield hermes


# JSON


async def test_sessions_and_their_rows(hermes: Hermes, stand_in: StandIn) -> None:
    first = await hermes.api.create_session(title="one", model="m")
    second = await hermes.api.create_session()
    assert (first["title"], first["model"]) == ("one", "m")
    page, more = await hermes.api.list_sessions(1, 0)
    assert ([session["id"] for session in page], more) == ([second["id"]], True)
    page, more = await hermes.api.list_sessions(1, 1)
    assert ([session["id"] for session in page], more) == ([first["id"]], False)
    stand_in.agent.history.add(first["id"], {"role": "user", "content": "hi"})
    assert [row["content"] for row in await hermes.api.messages(first["id"])] == ["hi"]


async def test_what_hermes_refuses(hermes: Hermes) -> None:
    with pytest.raises(SessionNotFound):
        await hermes.api.messages("none")
    await hermes.api.create_session(title="taken")
    with pytest.raises(TitleRefused, match="already in use"):
        await hermes.api.create_session(title="taken")


@pytest.mark.parametrize("session_id", ["../../health", "a b", "?x=1", "#", "ü", "%2e%2e", "a/messages"])
async def test_a_session_id_is_never_a_path(hermes: Hermes, session_id: str) -> None:
    with pytest.raises((SessionNotFound, RouteMissing)):
        await hermes.api.messages(session_id)


async def test_a_wrong_key_is_said_and_shown(stand_in: StandIn) -> None:
    async with opened(stand_in.url, "another-key-0123456789") as hermes:
        with pytest.raises(UpstreamAuthRequired, match="TALARIA_HERMES_API_KEY"):
            await hermes.api.create_session()
        said = hermes.states()["api"]
        assert (said["state"], said["code"]) == ("auth_required", "upstream_auth_required")
        assert "TALARIA_HERMES_API_KEY" in said["message"]


async def test_an_old_version_that_does_not_say_what_it_can() -> None:
    async with canned(HEALTH, answer("404 Not Found", b"404: Not Found"), in_turn=True) as server:
        api = HermesApi(settings(f"http://127.0.0.1:{server.port}"))
        capabilities = await api.capabilities()
        await api.close()
    assert (capabilities.known, capabilities.version) == (False, "0.19.0")
    assert not capabilities.allows("session_chat_streaming")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (answer("200 OK", b"<html>"), UpstreamInvalid),
        (answer("200 OK", b"[]"), UpstreamInvalid),
        (answer("200 OK", b""), UpstreamInvalid),
        (answer("302 Found", b"", "Location: http://192.0.2.1/"), UpstreamRefused),
        (answer("404 Not Found", b""), RouteMissing),
        (b"nonsense\r\n\r\n", UpstreamUnreachable),
        (b"", UpstreamUnreachable),
        (answer("200 OK", b"{}")[:-1], UpstreamUnreachable),
    ],
)
async def test_an_answer_that_is_none(given: bytes, error: type[RelayError]) -> None:
    async with canned(given) as server:
        api = HermesApi(settings(f"http://127.0.0.1:{server.port}"))
        with pytest.raises(error) as caught:
            await api.capabilities()
        await api.close()
    assert type(caught.value) is error


@pytest.mark.parametrize("session_id", [b'""', b"7", b"null", b'"%b"' % (b"x" * 300_000)])
async def test_a_session_whose_id_is_no_id(session_id: bytes) -> None:
    made = answer("200 OK", b'{"session": {"id": %b}}' % session_id)
    async with canned(HEALTH, answer("404 Not Found", b"404: Not Found"), made, in_turn=True) as server:
        api = HermesApi(settings(f"http://127.0.0.1:{server.port}"))
        with pytest.raises(UpstreamInvalid):
            await api.create_session()
        await api.close()


async def test_an_answer_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_ANSWER", 1000)
    async with canned(answer("200 OK", b" " * 5000)) as server:
        api = HermesApi(settings(f"http://127.0.0.1:{server.port}"))
        with pytest.raises(UpstreamInvalid):
            await api.capabilities()
        await api.close()


async def test_an_answer_that_comes_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "WHOLE_S", 0.2)
    slow = [HEALTH[:-20], *[HEALTH[at : at + 1] for at in range(len(HEALTH) - 20, len(HEALTH))]]
    async with canned(*slow) as server:
        server.pause_s = 0.05
        async with asyncio.timeout(5), opened(f"http://127.0.0.1:{server.port}") as hermes:
            with pytest.raises(UpstreamTimeout):
                await hermes.api.capabilities()


async def test_no_proxy_of_the_environment_is_used(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with opened(stand_in.url) as hermes:
        assert await hermes.api.create_session()


async def test_nothing_secret_is_logged(hermes: Hermes, stand_in: StandIn, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await hermes.api.create_session(title="my private title")
    with pytest.raises(SessionNotFound):
        await hermes.api.messages("none")
    async with opened(stand_in.url, "another-key-0123456789") as other:
        await other.probe()
    ours = [record for record in caplog.records if record.name.startswith("talaria")]
    said = " ".join(f"{record.getMessage()} {record.__dict__}" for record in ours)
    assert KEY not in said
    assert "another-key" not in said
    assert "private" not in said


# state


async def test_the_state_follows_what_is_there() -> None:
    agent = Agent(delay_s=0)
    async with serve_stand_in(KEY, agent=agent) as served, opened(served.url) as hermes:
        assert await hermes.probe() == {"state": "up", "version": "0.19.0"}
        assert hermes.states() == {"api": {"state": "up", "version": "0.19.0", "route": "local"}}
        lease = await leased(hermes, (await hermes.api.create_session())["id"])
        port = int(served.url.rpartition(":")[2])
    async with opened(served.url) as hermes:
        said = await hermes.probe()
        assert said["state"] == "down"
        assert "TALARIA_HERMES_API_URL" in said["message"]
        assert served.url not in said["message"]
        with pytest.raises(UpstreamUnreachable):
            await leased(hermes, lease.session_id)
        async with serve_stand_in(KEY, port, agent=agent):
            assert (await hermes.probe())["state"] == "up"


async def test_a_failure_is_noticed_at_once_and_looked_into_soon(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hermes_module, "SOON_S", 0.0)
    async with Supervisor() as tasks:
        hermes, looked = Hermes(settings(stand_in.url), tasks), asyncio.Event()
        look = hermes.probe

        async def probe() -> Any:
            await look()
            looked.set()

        monkeypatch.setattr(hermes, "probe", probe)
        async with asyncio.timeout(10), hermes:
            await looked.wait()
            looked.clear()
            hermes._failed(UpstreamUnreachable())
            assert hermes.states()["api"]["state"] == "down"
            await looked.wait()
            assert hermes.states()["api"]["state"] == "up"


async def test_switched_off() -> None:
    async with opened("") as hermes:
        said = hermes.states()["api"]
        assert (said["state"], said["code"]) == ("off", "upstream_off")
        with pytest.raises(UpstreamOff):
            await hermes.api.create_session()


async def test_an_insecure_route_wants_its_owner_and_says_why() -> None:
    async with opened("http://192.0.2.1:8642") as hermes:
        said = await hermes.probe()
        assert said["state"] == "auth_required"
        assert "TALARIA_HERMES_ALLOW_PLAIN" in said["message"]
        with pytest.raises(RelayError, match="TALARIA_HERMES_ALLOW_PLAIN"):
            await hermes.api.create_session()


# leases


async def test_a_lease_binds_what_was_known_before(hermes: Hermes, stand_in: StandIn) -> None:
    session = (await hermes.api.create_session())["id"]
    lease = await leased(hermes, session)
    assert (lease.route, lease.session_id, lease.last_row) == ("session_stream", session, 0)
    assert lease.endpoint == f"/api/sessions/{session}/chat/stream"
    assert lease.mark is not None
    assert not lease.drop_interrupts
    assert Lease.from_json(lease.as_json()) == lease
    assert KEY not in str(lease.as_json())


async def test_a_session_is_read_once_and_what_was_submitted_since_is_counted(
    hermes: Hermes, stand_in: StandIn
) -> None:
    history = stand_in.agent.history
    session = history.create().id
    history.add(session, {"role": "user", "content": "before"})
    first = await leased(hermes, session)
    assert first.last_row == history.get(session).rows[-1]["id"]
    history.add(session, {"role": "user", "content": "one"})
    hermes.rows.submitted(session, "turn-1")
    second = await leased(hermes, session)
    assert (second.last_row, second.since) == (first.last_row, ("turn-1",))
    hermes.rows.forget(session)
    assert (await leased(hermes, session)).last_row == history.get(session).rows[-1]["id"]


async def test_a_hermes_without_streamed_chat_gets_no_turn(hermes: Hermes, stand_in: StandIn) -> None:
    session = (await hermes.api.create_session())["id"]
    known = await hermes.api.capabilities()
    hermes.api._capabilities = type(known)(known=True, features={"session_chat_streaming": False})
    with pytest.raises(UpstreamUnsupported):
        await leased(hermes, session)


def test_a_lease_without_a_mark_survives_the_database() -> None:
    lease = Lease("session_stream", "b", "s", "/p", 1, True, None, 3, ("a", "b"))
    assert Lease.from_json(lease.as_json()) == lease
    assert ProcessMark(1, "a") != ProcessMark(1, "b")


def test_row_marks_are_few_and_renewed() -> None:
    marks = RowMarks()
    for n in range(1500):
        marks.read(f"s{n}", [{"id": n}])
    assert marks.get("s0") is None
    assert marks.get("s1499") == (1499, ())
    for n in range(20):
        marks.submitted("s1499", f"t{n}")
    assert marks.get("s1499") is None
    marks.submitted("unknown", "t")
    assert marks.get("unknown") is None
