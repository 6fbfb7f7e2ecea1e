"""Every failure of Hermes has a name, and words that say what its owner can do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from app.errors import OutcomeUncertain
from app.hermes.api import HermesApi
from app.hermes.errors import (
    ProfileUnknown,
    TitleRefused,
    UpstreamAuthRequired,
    UpstreamBusy,
    UpstreamError,
    UpstreamInvalid,
    UpstreamKeyShort,
    UpstreamRestarting,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from app.hermes.hermes import Hermes
from app.settings import HermesSettings
from app.tasks import Supervisor
from tests.hermes_client.canned import answer, canned
from tests.hermes_client.routed import CUT, Routed, refused, routed, said

UNAUTHORIZED = refused("401 Unauthorized", "invalid_api_key")
LIST = "GET /api/sessions"
LISTED = f"{LIST}?limit=1&offset=0"
NO_SUCH = said({"error": "Unknown or unconfigured profile"}, "404 Not Found")
EMPTY = said({"data": []})


@asynccontextmanager
async def api(
    answers: Mapping[str, Sequence[bytes]], key: str = "", failures: list[UpstreamError] | None = None, **options: Any
) -> AsyncIterator[tuple[Routed, HermesApi]]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(routed(answers, **options))
        heard: list[UpstreamError] = [] if failures is None else failures
        api = HermesApi(settings(server.url, key), failed=heard.append)
        stack.push_async_callback(api.close)
        yield server, api


def settings(url: str, key: str = "") -> HermesSettings:
    return HermesSettings(hermes_api_url=url, hermes_api_key=key or None)  # type: ignore[arg-type]


async def closed_port() -> str:
    async with routed({}) as server:
        return server.url


# the key


async def test_no_key_and_a_wrong_key_are_told_apart() -> None:
    said = []
    for key in ("", "a-wrong-key-0123456789"):
        async with api({LISTED: [UNAUTHORIZED]}, key) as (_, hermes):
            with pytest.raises(UpstreamAuthRequired, match="TALARIA_HERMES_API_KEY") as caught:
                await hermes.list_sessions(1, 0)
            said.append(caught.value.message)
    assert said[0].startswith("Hermes asks for a key")
    assert said[1].startswith("Hermes does not accept the relay's key")


@pytest.mark.parametrize("listens", [True, False])
async def test_a_key_that_is_too_short_for_hermes(listens: bool) -> None:
    """Its API server does not start with one; something before it may still answer."""
    async with api({LISTED: [UNAUTHORIZED]}, "short") as (server, _):
        url = server.url if listens else await closed_port()
        hermes = HermesApi(settings(url, "short"))
        with pytest.raises(UpstreamKeyShort, match="16 characters"):
            await hermes.messages("s1") if not listens else await hermes.list_sessions(1, 0)
        await hermes.close()


async def test_a_short_key_that_is_taken_is_nobodys_business() -> None:
    async with api({LISTED: [EMPTY]}, "short") as (_, hermes):
        assert await hermes.list_sessions(1, 0) == ([], False)


async def test_a_short_key_is_shown_as_what_the_owner_has_to_set() -> None:
    async with Supervisor() as tasks, Hermes(settings(await closed_port(), "short"), tasks) as hermes:
        assert (await hermes.probe())["state"] == "auth_required"
    async with Supervisor() as tasks, Hermes(settings(await closed_port(), "k" * 16), tasks) as hermes:
        assert (await hermes.probe())["state"] == "down"


# silence


async def test_a_hermes_that_hangs_is_not_one_that_is_away() -> None:
    failures: list[UpstreamError] = []
    async with canned(b"", stays=True) as server:
        hermes = HermesApi(settings(f"http://127.0.0.1:{server.port}"), failed=failures.append)
        hermes._client.timeout = httpx.Timeout(0.05)
        with pytest.raises(UpstreamTimeout):
            await hermes.capabilities()
        await hermes.close()
    assert [error.code for error in failures] == ["upstream_timeout"]
    gone = HermesApi(settings(await closed_port()))
    with pytest.raises(UpstreamUnreachable) as caught:
        await gone.capabilities()
    await gone.close()
    assert caught.value.code == "upstream_unreachable"


@pytest.mark.parametrize("cut", [CUT, answer("200 OK", b"{}")[:-1]])
async def test_what_hermes_may_have_done_is_uncertain(cut: bytes) -> None:
    failures: list[UpstreamError] = []
    answers = {
        "POST /api/sessions": [cut], "POST /api/sessions/s1/fork": [cut], "DELETE /api/sessions/s1": [cut],
        "PATCH /api/sessions/s1": [cut], "GET /api/sessions/s1": [cut],
    }  # fmt: skip
    async with api(answers, failures=failures) as (_, hermes):
        hermes._client.timeout = httpx.Timeout(0.2)  # where it does not close either
        for deed in (hermes.create_session(), hermes.fork_session("s1", None), hermes.delete_session("s1")):
            with pytest.raises(OutcomeUncertain):
                await deed
        assert len(failures) == 3
        for deed in (hermes.rename_session("s1", "t"), hermes.session("s1")):  # which may be repeated
            with pytest.raises(UpstreamUnreachable):
                await deed


async def test_what_was_never_sent_is_not_uncertain() -> None:
    hermes = HermesApi(settings(await closed_port()))
    with pytest.raises(UpstreamUnreachable):
        await hermes.call("POST", "/api/sessions", body={}, once=True)
    await hermes.close()


async def test_a_fork_that_lost_its_title_on_the_way_is_uncertain() -> None:
    made = said({"session": {"id": "s2"}}, "201 Created")
    async with api({"POST /api/sessions/s1/fork": [made], "PATCH /api/sessions/s2": [CUT]}) as (_, hermes):
        with pytest.raises(OutcomeUncertain, match="the fork was made"):
            await hermes.fork_session("s1", "t")


# refusals


@pytest.mark.parametrize(
    ("given", "error", "retry_after"),
    [
        (refused("400 Bad Request", "invalid_title", "Title too long"), TitleRefused, None),
        (NO_SUCH, ProfileUnknown, None),
        (refused("429 Too Many Requests", "rate_limit_exceeded", "Too many concurrent runs"), UpstreamBusy, None),
        (answer("503 Oh", b'{"error":{"code":"gateway_draining"}}', "Retry-After: 1"), UpstreamRestarting, 1),
        (answer("503 Oh", b"", "Retry-After: 2"), UpstreamBusy, 2),
        (answer("200 OK", b'{"data": 7}'), UpstreamInvalid, None),
    ],
)
async def test_a_refusal_has_a_name(given: bytes, error: type[UpstreamError], retry_after: int | None) -> None:
    async with api({LISTED: [given]}) as (_, hermes):
        with pytest.raises(error) as caught:
            await hermes.list_sessions(1, 0)
    assert type(caught.value) is error
    assert (caught.value.layer, caught.value.retry_after) == ("upstream", retry_after)


async def test_hermes_own_words_are_shown() -> None:
    refusal = refused("400 Bad Request", "invalid_title", "Title 'a' is already in use by session s9")
    async with api({"PATCH /api/sessions/s1": [refusal]}) as (_, hermes):
        with pytest.raises(TitleRefused, match="'a' is already in use by session s9"):
            await hermes.rename_session("s1", "a")


# profiles

SERVES_MANY: Mapping[str, Sequence[bytes]] = {"GET /p/No-Such/health": [NO_SUCH]}
SERVES_ONE: Mapping[str, Sequence[bytes]] = {"GET /p/No-Such/health": [said({"status": "ok"})]}


async def test_a_profile_is_a_prefix_where_hermes_serves_several() -> None:
    answers = {**SERVES_MANY, "GET /p/second/api/sessions/a%2Fb/messages": [said({"data": [{"id": 1}]})]}
    async with api(answers) as (server, hermes):
        assert await hermes.messages("a/b", "second") == [{"id": 1}]
        assert await hermes.messages("a/b", "second") == [{"id": 1}]
        assert [route for route, _, _ in server.requests].count("GET /p/No-Such/health") == 1


@pytest.mark.parametrize("answers", [SERVES_ONE, {}])
async def test_elsewhere_another_profile_is_refused_and_not_run_as_the_one_there_is(
    answers: Mapping[str, Sequence[bytes]],
) -> None:
    async with api({**answers, "GET /api/sessions/s1/messages": [EMPTY]}) as (server, hermes):
        with pytest.raises(ProfileUnknown):
            await hermes.messages("s1", "second")
        for profile in (None, "default"):
            assert await hermes.messages("s1", profile) == []
        assert not [route for route, _, _ in server.requests if "/p/second" in route]


async def test_a_profile_that_hermes_does_not_know() -> None:
    async with api({**SERVES_MANY, "GET /p/nobody/api/sessions/s1": [NO_SUCH]}) as (_, hermes):
        with pytest.raises(ProfileUnknown, match="multiplex_profiles"):
            await hermes.session("s1", "nobody")


async def test_the_profiles_that_are_known() -> None:
    async with routed({}) as server, Supervisor() as tasks, Hermes(settings(server.url), tasks) as hermes:
        await hermes.probe()
        assert hermes.profiles() == [{"name": "default", "is_default": True}]
    async with Supervisor() as tasks, Hermes(settings(""), tasks) as hermes:
        assert hermes.profiles() == []
