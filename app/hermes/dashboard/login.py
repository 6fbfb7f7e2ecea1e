"""The gated dashboard: a login with username and password, and a ticket for each connect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from app.hermes.dashboard.rest import Answer, Rest
from app.hermes.errors import UpstreamAuthRequired, UpstreamBusy, UpstreamError, UpstreamFailed, UpstreamInvalid

_NAMES = frozenset(
    prefix + name
    for prefix in ("", "__Host-", "__Secure-")
    for name in ("hermes_session_at", "hermes_session_rt", "hermes_session_provider")
)
MAX_COOKIE = 4096  # bytes, as browsers have it
LIMITED_S = 60  # Hermes counts logins by the minute


class Login:
    """Cookies are used until they are refused; then there is one new login.

    A login that failed is not tried again until `again` is called, so that nobody but who paces himself counts
    against Hermes' limit.
    """

    def __init__(self, rest: Rest, username: str, password: str) -> None:
        self._rest = rest
        self._username, self._password = username, password
        self._cookies: dict[str, str] = {}
        self._failure: UpstreamError | None = None
        self._lock = asyncio.Lock()

    def again(self) -> None:
        self._failure = None

    async def headers(self) -> dict[str, str]:
        """Raises UpstreamAuthRequired, UpstreamBusy."""
        async with self._lock:
            if not self._cookies:
                await self._login()
        return self._sent()

    def refused(self, headers: Mapping[str, str]) -> None:
        if headers == self._sent():  # else there has been a new login since
            self._cookies = {}

    def learn(self, answer: Answer) -> None:
        """Hermes renews a login by itself, with any answer."""
        self._cookies |= session_cookies(answer.set_cookies)
        self._cookies = {name: value for name, value in self._cookies.items() if value.strip('"')}

    async def query(self) -> dict[str, str]:
        """What the URL of one connect carries."""
        headers = await self.headers()
        answer = await self._rest.send("POST", "/api/auth/ws-ticket", headers)
        if answer.status == 401:
            self.refused(headers)
            answer = await self._rest.send("POST", "/api/auth/ws-ticket", await self.headers())
        if answer.status == 401:
            raise UpstreamAuthRequired("the dashboard does not accept its own login: look into its log")
        if answer.status != 200:
            raise UpstreamFailed(f"the dashboard gives no ticket for its socket (HTTP {answer.status})")
        self.learn(answer)
        ticket = answer.json().get("ticket")
        if not isinstance(ticket, str) or not ticket:
            raise UpstreamInvalid("the dashboard answered without a ticket")
        return {"ticket": ticket}

    def _sent(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items())}

    async def _login(self) -> None:
        if self._failure is not None:
            raise self._failure
        body = {"provider": "basic", "username": self._username, "password": self._password}
        answer = await self._rest.send("POST", "/auth/password-login", body=body)
        if (failure := _failure(answer, self._rest.route.setting)) is not None:
            self._failure = failure
            raise failure
        self.learn(answer)
        if not self._cookies:
            raise UpstreamInvalid("the dashboard took the login and set no cookie")


def session_cookies(set_cookies: Iterable[str]) -> dict[str, str]:
    """Name → value exactly as it was set, for the cookies of a login; an empty value takes it back."""
    found = {}
    for line in set_cookies:
        name, equals, value = line.partition(";")[0].strip().partition("=")
        if equals and name in _NAMES and len(value) <= MAX_COOKIE and value.isascii() and value.isprintable():
            found[name] = value
    return found


def _failure(answer: Answer, setting: str) -> UpstreamError | None:
    if answer.status == 200:
        return None
    if answer.status == 401:
        return UpstreamAuthRequired(
            "the dashboard does not accept TALARIA_HERMES_DASHBOARD_USERNAME with TALARIA_HERMES_DASHBOARD_PASSWORD"
        )
    if answer.status == 429:
        return UpstreamBusy(
            "the dashboard takes no further login for a minute", retry_after=answer.retry_after or LIMITED_S
        )
    if answer.status == 404:
        return UpstreamAuthRequired("this dashboard has no login by password: the relay knows no other way in")
    if 300 <= answer.status < 400:
        return UpstreamAuthRequired(f"the dashboard's login redirects: {setting} must be where it answers itself")
    return UpstreamFailed(f"the dashboard's login failed (HTTP {answer.status})")
