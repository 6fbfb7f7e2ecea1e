"""How the relay gets into a dashboard, over real HTTP and a real socket, and what it says when it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request

from app.hermes.dashboard.dashboard import Dashboard
from app.hermes.dashboard.login import session_cookies
from app.hermes.errors import SessionNotFound, UpstreamAuthRequired, UpstreamUnreachable
from app.logs.redaction import clean_text
from tests.hermes_client.dashboard_server import (
    PASSWORD,
    TOKEN,
    USERNAME,
    FakeDashboard,
    Waits,
    faked,
    is_ready,
    opened,
    redirect,
)

LOGIN: dict[str, Any] = {"hermes_dashboard_username": USERNAME, "hermes_dashboard_password": PASSWORD}


@pytest.fixture
async def fake() -> AsyncIterator[FakeDashboard]:
    async with faked() as fake:
        yield fake


async def refusal(fake: FakeDashboard, caplog: pytest.LogCaptureFixture, **settings: Any) -> str:
    """Why the owner is wanted, as the log has it; no credential is in it."""
    with caplog.at_level(logging.DEBUG, "talaria"):
        async with opened(fake, ready=False, **settings) as dashboard:
            await is_ready(dashboard, "auth_required")
            assert not dashboard.ready
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    for secret in (TOKEN, PASSWORD, "wrong-one"):
        assert secret not in caplog.text
        assert secret not in str(record.__dict__)
    reason = str(record.__dict__["reason"])
    assert clean_text(reason) == reason  # what to set is not taken for a secret: `token: …` would be
    return reason


async def lose(fake: FakeDashboard, dashboard: Dashboard) -> None:
    """The socket, after it was of use: the relay is back at once."""
    await dashboard._link.rows()
    await fake.drop()


async def settings_read() -> None:
    """Hermes' settings, which are asked for in the background of each connect."""
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "dashboard settings"))


# on loopback: a token


async def test_the_token_is_read_from_the_page_and_again_after_a_restart(fake: FakeDashboard) -> None:
    async with opened(fake) as dashboard:
        assert dashboard.state() == {"state": "up", "version": "0.19.0", "route": "local"}
        await settings_read()
        fake.token = "another-token"
        await lose(fake, dashboard)
        await fake.until(lambda: len(fake.sockets) == 2)
        await is_ready(dashboard)
        assert fake.counted["/"] == 2


async def test_a_token_of_the_settings_is_used_as_it_is(fake: FakeDashboard) -> None:
    async with opened(fake, hermes_dashboard_token=TOKEN):
        assert "/" not in fake.counted


async def test_a_wrong_token_is_said_to_be_one(fake: FakeDashboard, caplog: pytest.LogCaptureFixture) -> None:
    reason = await refusal(fake, caplog, hermes_dashboard_token="wrong-one")
    assert "does not accept TALARIA_HERMES_DASHBOARD_TOKEN" in reason


async def test_a_failure_is_told_as_long_as_it_lasts(fake: FakeDashboard) -> None:
    async with opened(fake) as dashboard:
        assert dashboard.failure is None
    async with opened(fake, ready=False, hermes_dashboard_token="wrong-one") as dashboard:
        assert isinstance(dashboard.failure, UpstreamUnreachable)
        await dashboard.settled()
        assert isinstance(dashboard.failure, UpstreamAuthRequired)
    async with opened(fake, ready=False, hermes_dashboard_url="") as dashboard:
        assert dashboard.failure is None


async def test_a_page_without_a_token(fake: FakeDashboard, caplog: pytest.LogCaptureFixture) -> None:
    fake.page = "<html>"
    assert "set TALARIA_HERMES_DASHBOARD_TOKEN" in await refusal(fake, caplog)


async def test_a_socket_that_is_refused_to_who_is_let_in(fake: FakeDashboard, caplog: pytest.LogCaptureFixture) -> None:
    fake.socket_refused = True
    reason = await refusal(fake, caplog)
    assert "refuses its socket" in reason
    assert "TALARIA_HERMES_DASHBOARD_URL" in reason


async def test_no_page_is_read_from_another_host(fake: FakeDashboard, caplog: pytest.LogCaptureFixture) -> None:
    reason = await refusal(fake, caplog, hermes_dashboard_url=f"http://0.0.0.0:{fake.port}")
    assert "set TALARIA_HERMES_DASHBOARD_TOKEN" in reason
    assert "/" not in fake.counted


async def test_no_credential_goes_to_another_host_in_the_clear(
    fake: FakeDashboard, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"http://0.0.0.0:{fake.port}"
    assert "the token" in await refusal(fake, caplog, hermes_dashboard_url=url, hermes_dashboard_token=TOKEN)
    caplog.clear()
    assert "the password" in await refusal(fake, caplog, hermes_dashboard_url=url, **LOGIN)
    assert fake.requests == []
    async with opened(fake, hermes_dashboard_url=url, hermes_dashboard_token=TOKEN, hermes_allow_plain=("0.0.0.0",)):
        assert len(fake.sockets) == 1


# gated: a login


@pytest.fixture
def gated(fake: FakeDashboard) -> FakeDashboard:
    fake.gated = True
    return fake


async def test_cookies_go_back_as_they_came_and_tickets_are_new(gated: FakeDashboard) -> None:
    async with opened(gated, **LOGIN) as dashboard:
        await lose(gated, dashboard)
        await gated.until(lambda: len(gated.sockets) == 2)
        await is_ready(dashboard)
        assert gated.counted["ticket"] == 2
        assert gated.counted["login"] == 1
        sent = {request.headers["cookie"] for request in gated.requests}
        assert sent == {'hermes_session_at="ab1="; hermes_session_rt=cd'}


async def test_a_login_that_ended_is_made_anew_once(gated: FakeDashboard) -> None:
    async with opened(gated, **LOGIN) as dashboard:
        gated.cookies.clear()
        gated.rows["s"] = [{"id": 1, "role": "user", "content": "hi"}]
        assert await dashboard.messages("s") == gated.rows["s"]
        gated.cookies.clear()
        await lose(gated, dashboard)
        await gated.until(lambda: len(gated.sockets) == 2)
        assert gated.counted["login"] == 3


async def test_a_wrong_password_is_said_to_be_one(gated: FakeDashboard, caplog: pytest.LogCaptureFixture) -> None:
    reason = await refusal(gated, caplog, **LOGIN | {"hermes_dashboard_password": "wrong-one"})
    assert "TALARIA_HERMES_DASHBOARD_PASSWORD" in reason
    assert gated.counted["login"] == 1


async def test_a_login_that_failed_is_not_tried_by_every_request(gated: FakeDashboard) -> None:
    async with opened(gated, ready=False, **LOGIN | {"hermes_dashboard_password": "wrong-one"}) as dashboard:
        await is_ready(dashboard, "auth_required")
        with pytest.raises(UpstreamAuthRequired):
            await dashboard.messages("s")
        assert gated.counted["login"] == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [({}, "set TALARIA_HERMES_DASHBOARD_USERNAME"), ({"hermes_dashboard_token": TOKEN}, "a token does not open it")],
)
async def test_a_login_that_is_not_there(
    gated: FakeDashboard, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], said: str
) -> None:
    assert said in await refusal(gated, caplog, **settings)


async def test_a_password_follows_no_redirect(gated: FakeDashboard, caplog: pytest.LogCaptureFixture) -> None:
    gated.login = redirect
    assert "TALARIA_HERMES_DASHBOARD_URL" in await refusal(gated, caplog, **LOGIN)
    assert "/elsewhere" not in gated.counted


async def test_hermes_limit_of_logins_is_kept(gated: FakeDashboard) -> None:
    gated.login = lambda: JSONResponse({"detail": "slow down"}, 429, headers={"retry-after": "77"})
    waits = Waits()
    async with opened(gated, ready=False, sleep=waits, **LOGIN) as dashboard:
        await waits.over(77, within=77 * 0.2)
        await gated.until(lambda: gated.counted["login"] == 2)
        assert dashboard.state()["state"] == "down"


def test_which_cookies_are_kept() -> None:
    lines = [
        '__Host-hermes_session_at="a=b"; HttpOnly', "__Secure-hermes_session_rt=c", "hermes_session_provider=basic",
        "session=x", "hermes_session_at_evil=1", "hermes_session_rt=" + "x" * 5000, "hermes_session_rt=a\r\nb",
    ]  # fmt: skip
    assert session_cookies(lines) == {
        "__Host-hermes_session_at": '"a=b"', "__Secure-hermes_session_rt": "c", "hermes_session_provider": "basic",
    }  # fmt: skip


# what is there


async def test_rows_and_none(fake: FakeDashboard) -> None:
    async with opened(fake) as dashboard:
        with pytest.raises(SessionNotFound):
            await dashboard.messages("none")


async def test_it_is_off_where_no_url_is_given(fake: FakeDashboard) -> None:
    async with opened(fake, ready=False, hermes_dashboard_url="") as dashboard:
        assert dashboard.state() == {"state": "off"}
        assert not dashboard.ready


async def test_what_is_no_dashboard_is_down(fake: FakeDashboard) -> None:
    fake.ready = {"hello": "world"}
    waits = Waits()
    async with opened(fake, ready=False, sleep=waits) as dashboard:
        await waits.over(30, within=6)
        assert (dashboard.state()["state"], dashboard.state()["code"]) == ("down", "upstream_invalid")


@pytest.mark.parametrize(
    ("denial", "said"),
    [(redirect(), "redirects"), (Response(status_code=404), "0.19 or newer"), (Response(status_code=500), "HTTP 500")],
)
async def test_a_socket_that_is_not_there(
    fake: FakeDashboard, caplog: pytest.LogCaptureFixture, denial: Response, said: str
) -> None:
    """Its URL holds the token, so no redirect is followed."""
    fake.denial = denial
    waits = Waits()
    async with opened(fake, ready=False, sleep=waits):
        await waits.over(1, within=0.21)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert said in record.__dict__["reason"]
    assert "/elsewhere" not in fake.counted


async def test_a_socket_whose_other_end_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.hermes.dashboard.socket.PING_S", 0.02)

    def page(connection: ServerConnection, request: Request) -> object:
        if request.path.startswith("/api/ws"):
            return None
        return connection.respond(HTTPStatus.OK, '{"auth_required":false}')

    async def handler(connection: ServerConnection) -> None:
        await connection.send('{"method":"event","params":{"type":"gateway.ready"}}')
        connection.transport.pause_reading()  # as a host that lost its power: nothing is answered, nothing closed
        await connection.wait_closed()

    fake = FakeDashboard()
    async with serve(handler, "127.0.0.1", 0, process_request=page, close_timeout=0.01) as server:  # type: ignore[arg-type]
        fake.port = next(iter(server.sockets)).getsockname()[1]
        async with opened(fake, hermes_dashboard_token=TOKEN) as dashboard:
            await is_ready(dashboard, "down")


async def test_how_long_an_approval_waits_is_read_from_its_settings(fake: FakeDashboard) -> None:
    async with opened(fake) as dashboard:
        await settings_read()
        assert dashboard._link.approval_s == 45
