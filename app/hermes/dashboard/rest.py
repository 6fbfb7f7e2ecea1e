"""The dashboard's HTTP: one request, one bounded answer, no redirects, and no cookie that is not given."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx
import orjson

from app.hermes.dashboard.errors import unreachable
from app.hermes.errors import UpstreamInvalid
from app.hermes.routes import Route, trust

CONNECT_S = 5.0
READ_S = 30.0
WHOLE_S = 120.0  # for the whole of an answer, which may come byte by byte
MAX_ANSWER = 4 * 1024 * 1024  # bytes: the page, the settings
MAX_ROWS = 64 * 1024 * 1024  # bytes: the rows of a very long conversation come in one answer

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    set_cookies: tuple[str, ...]
    retry_after: int | None  # seconds

    def json(self) -> Json:
        """Raises UpstreamInvalid."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            raise UpstreamInvalid("the dashboard did not answer with JSON: is its URL in the settings right?")
        return value


class Rest:
    """Raises UpstreamUnreachable and UpstreamInvalid; what a status means is for the caller."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=2, keepalive_expiry=30.0),
            follow_redirects=False,
            trust_env=False,
            verify=trust(),
            # Cookies are sent as they came, quotes and all, and only where app.hermes.dashboard.login says so.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            headers={"User-Agent": "talaria", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, *,
        params: Mapping[str, str] | None = None, body: Json | None = None, limit: int = MAX_ANSWER,
    ) -> Answer:  # fmt: skip
        request = self._client.build_request(
            method, f"{self.route.base}{path}", params=params, json=body, headers=dict(headers or {})
        )
        try:
            async with asyncio.timeout(WHOLE_S):
                response, raw = await self._send(request, limit)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as exc:
            raise unreachable(self.route, exc) from exc
        cookies = response.headers.get_list("set-cookie")
        return Answer(response.status_code, bytes(raw), tuple(cookies), _seconds(response.headers.get("retry-after")))

    async def _send(self, request: httpx.Request, limit: int) -> tuple[httpx.Response, bytearray]:
        response = await self._client.send(request, stream=True)
        raw = bytearray()
        try:
            async for chunk in response.aiter_raw():
                raw += chunk
                if len(raw) > limit:
                    raise UpstreamInvalid("the dashboard's answer is longer than the relay takes")
        finally:
            await response.aclose()
        return response, raw


def _seconds(value: str | None) -> int | None:
    return int(value) if value and value.isdecimal() and len(value) <= 9 else None
