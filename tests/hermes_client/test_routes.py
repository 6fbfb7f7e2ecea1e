"""Where the key of Hermes may go, and where not."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from app.errors import Misconfigured
from app.hermes.errors import UpstreamInsecure
from app.hermes.routes import Route, api_routes, dashboard_routes
from app.settings import HermesSettings

KEY = "api-key-0123456789"


def api_route(settings: HermesSettings) -> Route | None:
    return next(iter(api_routes(settings)), None)


def dashboard_route(settings: HermesSettings) -> Route | None:
    return next(iter(dashboard_routes(settings)), None)


def settings(url: str, key: str | None = KEY, *plain: str) -> HermesSettings:
    return HermesSettings(hermes_api_url=url, hermes_api_key=key, hermes_allow_plain=plain)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8642", "http://127.3.2.1", "http://localhost:8642", "http://LOCALHOST", "http://[::1]:8642",
        "https://hermes.example.org", "https://192.0.2.7:8443/base", "http://hermes:8642", "http://[fd00::1]:8642",
    ],
)  # fmt: skip
def test_the_key_is_sent_where_nobody_else_can_read_it(url: str) -> None:
    route = api_route(settings(url, KEY, "hermes", "fd00::1"))
    assert route is not None
    assert route.headers == {"Authorization": f"Bearer {KEY}"}
    assert KEY not in repr(route)


@pytest.mark.parametrize(
    "url",
    [
        "http://192.168.1.4:8642", "http://hermes.lan", "http://127.0.0.1.example.org", "http://localhost.example.org",
        "http://[fe80::1]:8642", "http://0.0.0.0:8642", "http://xlocalhost",
    ],
)  # fmt: skip
def test_the_key_is_not_sent_in_the_clear(url: str) -> None:
    with pytest.raises(UpstreamInsecure, match="TALARIA_HERMES_ALLOW_PLAIN") as caught:
        api_route(settings(url, KEY, "hermes"))
    assert KEY not in str(caught.value)
    assert (urlsplit(url).hostname or "") not in str(caught.value)
    assert api_route(settings(url, None)) is not None


@pytest.mark.parametrize("key", ["two\r\nlines", "with space", "nicht-ascii-ü", "\x00"])
def test_a_key_that_no_header_can_carry_is_refused_unsaid(key: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        api_route(settings("http://127.0.0.1", key))
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "host", "port", "header"),
    [
        ("http://127.0.0.1", "127.0.0.1", 80, "127.0.0.1"),
        ("http://127.0.0.1:8642", "127.0.0.1", 8642, "127.0.0.1:8642"),
        ("https://h.example", "h.example", 443, "h.example"),
        ("https://h.example:80", "h.example", 80, "h.example:80"),
        ("http://[::1]:8642", "::1", 8642, "[::1]:8642"),
    ],
)
def test_the_parts_of_a_route(url: str, host: str, port: int, header: str) -> None:
    route = api_route(settings(url))
    assert route is not None
    assert (route.host, route.port, route.host_header) == (host, port, header)


def test_an_empty_url_switches_it_off() -> None:
    assert api_route(settings("")) is None


@pytest.mark.parametrize("secret", ["hermes_dashboard_token", "hermes_dashboard_password"])
def test_what_opens_the_dashboard_is_kept_as_the_key_is(secret: str) -> None:
    def dashboard(url: str, *plain: str) -> HermesSettings:
        return HermesSettings(**{"hermes_dashboard_url": url, secret: KEY, "hermes_allow_plain": plain})  # type: ignore[arg-type]

    with pytest.raises(UpstreamInsecure, match="TALARIA_HERMES_ALLOW_PLAIN") as caught:
        dashboard_route(dashboard("http://hermes.lan:9119"))
    assert KEY not in str(caught.value)
    for url in ("http://127.0.0.1:9119", "https://hermes.lan", "http://hermes:9119"):
        route = dashboard_route(dashboard(url, "hermes"))
        assert route is not None
        assert route.headers == {}
    assert dashboard_route(dashboard("")) is None


def test_a_token_that_no_header_can_carry_is_refused_unsaid() -> None:
    with pytest.raises(Misconfigured, match="TALARIA_HERMES_DASHBOARD_TOKEN"):
        dashboard_route(HermesSettings(hermes_dashboard_token="two\r\nlines"))  # type: ignore[arg-type]


def test_the_local_route_comes_first_and_each_url_may_be_missing() -> None:
    local, remote = "http://127.0.0.1:8642", "https://hermes.example.org"

    def names(**urls: str) -> list[tuple[str, str, str]]:
        given = {f"hermes_api_{name}": url for name, url in urls.items()}
        return [(route.name, route.setting, route.base) for route in api_routes(HermesSettings(**given))]  # type: ignore[arg-type]

    one = ("local", "TALARIA_HERMES_API_URL", local)
    other = ("remote", "TALARIA_HERMES_API_REMOTE_URL", remote)
    assert names(url=local) == [one]
    assert names(url=local, remote_url=remote) == [one, other]
    assert names(url="", remote_url=remote) == [other]
    assert names(url=local, remote_url=local) == [one]
    assert names(url="") == []


def test_a_credential_goes_to_neither_of_two_if_it_may_not_go_to_one() -> None:
    urls = {"hermes_api_url": "http://127.0.0.1:1", "hermes_api_remote_url": "http://hermes.lan"}
    with pytest.raises(UpstreamInsecure, match="TALARIA_HERMES_API_REMOTE_URL") as caught:
        api_routes(HermesSettings(hermes_api_key=KEY, **urls))  # type: ignore[arg-type]
    assert "hermes.lan" not in str(caught.value)


def test_a_route_names_no_host() -> None:
    (route,) = api_routes(settings("https://hermes.example.org"))
    assert "example" not in repr(route)
