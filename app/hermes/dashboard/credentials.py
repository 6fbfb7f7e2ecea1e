"""How the relay gets into the dashboard, and why it does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from app.hermes.dashboard.login import Login
from app.hermes.dashboard.rest import MAX_ANSWER, Answer, Json, Rest
from app.hermes.errors import (
    RouteMissing,
    SessionNotFound,
    UpstreamAuthRequired,
    UpstreamBusy,
    UpstreamError,
    UpstreamFailed,
    UpstreamRefused,
)
from app.hermes.lease import ProcessMark
from app.hermes.local_first import COMPARED, Likeness, mark_of
from app.hermes.routes import Route, is_loopback
from app.settings import HermesSettings

_PAGE_TOKEN = re.compile(rb'__HERMES_SESSION_TOKEN__\s*=\s*"([!-~]{1,512}?)"')
_HEADER = "X-Hermes-Session-Token"


@dataclass(frozen=True, slots=True)
class About:
    version: str | None
    gated: bool
    mark: ProcessMark | None  # of the gateway beside it, where one runs


class Credential(Protocol):
    async def query(self) -> dict[str, str]:
        """What the URL of one connect carries."""

    async def headers(self) -> dict[str, str]: ...

    def refused(self, headers: Mapping[str, str]) -> None:
        """Hermes does not take these: forget what they were made of."""

    def again(self) -> None:
        """What failed may be tried once more."""

    def learn(self, answer: Answer) -> None: ...


class Token:
    """The dashboard on loopback: the token of the settings, else that of its page, which changes when it restarts."""

    def __init__(self, rest: Rest, given: str) -> None:
        self._rest = rest
        self.given = given
        self._token = given

    async def query(self) -> dict[str, str]:
        return {"token": await self._read()}

    async def headers(self) -> dict[str, str]:
        return {_HEADER: await self._read()}

    def refused(self, headers: Mapping[str, str]) -> None:
        if headers.get(_HEADER) == self._token:
            self._token = self.given

    def again(self) -> None:
        self._token = self.given

    def learn(self, answer: Answer) -> None:
        """A token is never renewed."""

    async def _read(self) -> str:
        if not self._token:
            found = _PAGE_TOKEN.search((await self._rest.send("GET", "/")).body)
            if found is None:
                raise UpstreamAuthRequired(
                    "the dashboard shows no page with its token; set TALARIA_HERMES_DASHBOARD_TOKEN to its "
                    "HERMES_DASHBOARD_SESSION_TOKEN"
                )
            self._token = found[1].decode("ascii")
        return self._token


class Access:
    """The way into the dashboard at one URL; what opens it is used nowhere else.

    Raises UpstreamAuthRequired, naming the setting to change, besides what Rest raises.
    """

    def __init__(self, settings: HermesSettings, route: Route, rest: Rest) -> None:
        self._settings = settings
        self._route = route
        self._rest = rest
        self._credential: Credential | None = None
        self._gated: bool | None = None

    async def knock(self) -> tuple[About, dict[str, str]]:
        """What is there, and what the URL of one connect carries."""
        about = await self.about()
        credential = self._credential_for(about)
        credential.again()
        return about, await credential.query()

    async def likeness(self) -> Likeness:
        """Which Hermes it is."""
        about = await self.about()
        self._credential_for(about).again()
        rows = (await self.get("/api/sessions", {"limit": str(COMPARED)})).get("sessions")
        ids = [str(row.get("id")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return Likeness(about.mark, frozenset(ids))

    def drop(self) -> None:
        """Another URL is used now: no login stays open for this one."""
        self._credential = None

    async def get(self, path: str, params: Mapping[str, str] | None = None, limit: int = MAX_ANSWER) -> Json:
        """Raises UpstreamError, of which SessionNotFound and RouteMissing say 404."""
        credential = self._credential or self._credential_for(await self.about())
        headers = await credential.headers()
        answer = await self._rest.send("GET", path, headers, params=params, limit=limit)
        if answer.status == 401:
            credential.refused(headers)
            headers = await credential.headers()
            answer = await self._rest.send("GET", path, headers, params=params, limit=limit)
        if (refusal := self._refusal(answer)) is not None:
            raise refusal
        credential.learn(answer)
        return answer.json()

    async def why_refused(self) -> UpstreamError:
        """Every refusal of the socket is HTTP 403; its neighbours say more."""
        try:
            await self.get("/api/sessions", {"limit": "1"})
        except UpstreamError as exc:
            return exc
        return UpstreamAuthRequired(f"the dashboard lets the relay in but refuses its socket: {self._named()}")

    async def about(self) -> About:
        """What it says to everybody."""
        answer = await self._rest.send("GET", "/api/status")
        if answer.status == 400:
            raise UpstreamAuthRequired(f"the dashboard does not answer to its name: {self._named()}")
        if answer.status != 200:
            raise UpstreamRefused(
                f"the dashboard does not say what it is (HTTP {answer.status}): is {self._route.setting} it?"
            )
        said = answer.json()
        version = said.get("version")
        mark = mark_of(None, said.get("gateway_platforms"))  # its pid is not said where there is a login
        return About(version[:64] if isinstance(version, str) else None, said.get("auth_required") is True, mark)

    def _named(self) -> str:
        return f"start it with the --host that {self._route.setting} names"

    def _credential_for(self, about: About) -> Credential:
        if self._credential is None or about.gated != self._gated:
            self._credential, self._gated = self._choose(about.gated), about.gated
        return self._credential

    def _choose(self, gated: bool) -> Credential:
        token, password = self._settings.hermes_dashboard_token, self._settings.hermes_dashboard_password
        if gated:
            username = self._settings.hermes_dashboard_username
            if username and password:
                return Login(self._rest, username, password.get_secret_value())
            raise UpstreamAuthRequired(
                "this dashboard wants a login: set TALARIA_HERMES_DASHBOARD_USERNAME and "
                "TALARIA_HERMES_DASHBOARD_PASSWORD" + (" (a token does not open it)" if token else "")
            )
        if token or is_loopback(self._route.host):
            return Token(self._rest, token.get_secret_value() if token else "")
        raise UpstreamAuthRequired(
            "this dashboard wants its token; set TALARIA_HERMES_DASHBOARD_TOKEN to its HERMES_DASHBOARD_SESSION_TOKEN"
            + (" (a login does not open it)" if password else "")
        )

    def _refusal(self, answer: Answer) -> UpstreamError | None:
        status = answer.status
        if status == 200:
            return None
        if status == 401:
            if isinstance(self._credential, Token) and self._credential.given:
                return UpstreamAuthRequired(
                    "the dashboard does not accept TALARIA_HERMES_DASHBOARD_TOKEN; set it to its "
                    "HERMES_DASHBOARD_SESSION_TOKEN, or unset it to let the relay read it on loopback"
                )
            return UpstreamAuthRequired("the dashboard does not accept what the relay was given: look into its log")
        if status == 404:
            return SessionNotFound() if b"ession not found" in answer.body else RouteMissing()
        if status in (429, 503):
            return UpstreamBusy(f"the dashboard is busy (HTTP {status})", retry_after=answer.retry_after)
        if status >= 500:
            return UpstreamFailed(f"the dashboard failed (HTTP {status})")
        return UpstreamRefused(f"the dashboard refused (HTTP {status})")
