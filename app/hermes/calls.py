"""Requests to the API server of Hermes: by profile, over one pooled client, with failures named for the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote

import httpx
import orjson

from app.clock import Clock
from app.errors import OutcomeUncertain
from app.hermes.capabilities import ENDPOINTS
from app.hermes.errors import (
    ProfileUnknown,
    RouteMissing,
    StreamBroken,
    UpstreamAuthRequired,
    UpstreamError,
    UpstreamInvalid,
    UpstreamKeyShort,
    UpstreamOff,
    UpstreamUnreachable,
    refusal_of,
    unreached,
)
from app.hermes.lease import Lease
from app.hermes.local_first import COMPARED, Likeness, LocalFirst, mark_of
from app.hermes.routes import Route, api_routes, trust
from app.hermes.stream import CONNECT_S
from app.hermes.upstream import Json
from app.settings import HermesSettings

READ_S = 30.0  # Hermes reads its own database for these; above it is stuck
WHOLE_S = 120.0  # for the whole of an answer, which may come byte by byte
MIN_KEY = 16  # characters; with a shorter one the API server of Hermes does not start
DEFAULT_PROFILE = "default"
NO_PROFILE = "No-Such"  # names of profiles have no capitals
MAX_ANSWER = 64 * 1024 * 1024  # bytes; the rows of a very long conversation come in one answer

# Few, and kept: opening a connection costs the relay more than a request on one that is open.
_POOL = httpx.Limits(max_connections=16, max_keepalive_connections=16, keepalive_expiry=60.0)
# Raised before a byte of the request was sent.
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)
_FORGET = (UpstreamUnreachable, UpstreamAuthRequired, StreamBroken)
_PLATFORM = "hermes-agent"
_UNSAID = "Hermes did not say whether it did this: look before you try again"


class Calls:
    """`failed` is told when Hermes cannot be reached or refuses the key, `moved` when another route came into use."""

    def __init__(
        self, settings: HermesSettings, failed: Callable[[UpstreamError], None], *,
        moved: Callable[[], None] = lambda: None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._settings, self._failed, self._told = settings, failed, moved
        self._clock = clock or Clock()
        self._choice: LocalFirst[str | None] | None = None
        self._multiplexes: bool | None = None
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            limits=_POOL,
            follow_redirects=False,
            trust_env=False,
            verify=trust(),
            headers={"User-Agent": "talaria", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        await self._client.aclose()

    @property
    def is_off(self) -> bool:
        return not (self._settings.hermes_api_url or self._settings.hermes_api_remote_url)

    @property
    def choice(self) -> LocalFirst[str | None]:
        """Raises UpstreamOff, UpstreamInsecure, Misconfigured."""
        if self._choice is None:
            if not (routes := api_routes(self._settings)):
                raise UpstreamOff()
            self._choice = LocalFirst(
                routes, greet=self._greet, liken=self._liken, changed=self._moved, clock=self._clock
            )
        return self._choice

    def route(self) -> Route:
        """The one in use, or that will be looked at first. Raises as `choice`."""
        return self.choice.route

    @property
    def has_choice(self) -> bool:
        """Whether another route may be there when one fails."""
        return self._choice is not None and self._choice.has_choice

    async def current_route(self) -> Route:
        """The one in use, greeted before it is sent the key. Raises UpstreamError, Misconfigured."""
        with self.naming():
            return await self.choice.current()

    def route_of(self, lease: Lease) -> Route:
        """What has begun on a route stays on it."""
        return self.choice.of(lease.base)

    def _moved(self) -> None:
        self.forget()
        self._told()

    def forget(self) -> None:
        """Another Hermes may be there now."""
        self._multiplexes = None

    async def multiplexes(self) -> bool:
        """Whether it serves more profiles than one. If not, it takes a request for any profile as one for its own."""
        if self._multiplexes is None:
            try:
                await self.call("GET", f"/p/{NO_PROFILE}{ENDPOINTS['health']}")
                self._multiplexes = False
            except ProfileUnknown:
                self._multiplexes = True
            except RouteMissing:  # it is that old
                self._multiplexes = False
        return self._multiplexes

    async def call(
        self, method: str, path: str, *, params: Mapping[str, int] | None = None, body: Json | None = None,
        profile: str | None = None, once: bool = False, route: Route | None = None,
    ) -> Json:  # fmt: skip
        """The answer's object. What may happen `once` only raises OutcomeUncertain where Hermes may have done it.

        Where a route fails, it is asked by the other one at once, if there is one and nothing can happen twice.
        """
        chosen, path = route or await self.current_route(), await self.path(path, profile)

        def asked(route: Route) -> httpx.Request:
            return self._client.build_request(
                method, f"{route.base}{path}", params=params, json=body, headers=route.headers
            )

        with self.naming():
            try:
                return await self._ask(asked(chosen), once)
            except UpstreamUnreachable:
                other = await self.choice.elsewhere(chosen)
                if other is None:
                    raise
            return await self._ask(asked(other), once)

    async def _ask(self, request: httpx.Request, once: bool) -> Json:
        try:
            async with asyncio.timeout(WHOLE_S):
                status, retry_after, raw = await self._send(request)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as exc:
            error = unreached(exc)
            if not once or isinstance(exc, _UNSENT):
                raise error from exc
            self._lost(error)
            raise OutcomeUncertain(_UNSAID, detail=error.detail) from error
        if not 200 <= status < 300:
            raise refusal_of(status, raw, retry_after)
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError as exc:
            raise UpstreamInvalid("Hermes did not answer with JSON") from exc
        if not isinstance(answer, dict):
            raise UpstreamInvalid("Hermes did not answer with a JSON object")
        return answer

    async def _greet(self, route: Route) -> str | None:
        """Its version. Asked without the key: who knows what listens there."""
        said = await self._ask(self._client.build_request("GET", f"{route.base}{ENDPOINTS['health']}"), once=False)
        if said.get("platform", _PLATFORM) != _PLATFORM:
            raise UpstreamInvalid(f"what answers at {route.setting} is not the API server of Hermes")
        version = said.get("version")
        return version if isinstance(version, str) else None

    async def _liken(self, route: Route) -> Likeness:
        async def get(endpoint: str, **params: int) -> Json:
            url = f"{route.base}{ENDPOINTS[endpoint]}"
            return await self._ask(
                self._client.build_request("GET", url, params=params, headers=route.headers), once=False
            )

        rows = (await get("sessions", limit=COMPARED)).get("data")
        ids = frozenset(str(row.get("id")) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
        try:
            health = await get("health_detailed")
        except RouteMissing:
            health = {}
        return Likeness(mark_of(health.get("pid"), health.get("platforms")), frozenset(ids))

    async def _send(self, request: httpx.Request) -> tuple[int, str | None, bytes]:
        response = await self._client.send(request, stream=True)
        try:
            raw = bytearray()
            async for chunk in response.aiter_raw():
                raw += chunk
                if len(raw) > MAX_ANSWER:
                    raise UpstreamInvalid("Hermes' answer is longer than the relay takes")
            return response.status_code, response.headers.get("retry-after"), bytes(raw)
        finally:
            await response.aclose()

    async def path(self, path: str, profile: str | None) -> str:
        """Raises ProfileUnknown where Hermes would do it in its own profile instead."""
        if profile is None or profile == DEFAULT_PROFILE:
            return path
        if not await self.multiplexes():
            raise ProfileUnknown()
        return f"/p/{quote(profile, safe='')}{path}"

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Around whatever asks Hermes. After some failures what was known of it is forgotten."""
        try:
            yield
        except UpstreamError as exc:
            error = self._named(exc)
            if isinstance(error, _FORGET):
                self._lost(error)
            if error is exc:
                raise
            raise error from exc

    def _lost(self, error: UpstreamError) -> None:
        self.forget()
        self._failed(error)

    def _named(self, error: UpstreamError) -> UpstreamError:
        """The same, in words for this owner's settings."""
        key = self._settings.hermes_api_key.get_secret_value() if self._settings.hermes_api_key else ""
        if key and len(key) < MIN_KEY and type(error) in (UpstreamUnreachable, UpstreamAuthRequired):
            return UpstreamKeyShort(detail=error.detail)
        if type(error) is UpstreamAuthRequired and not key:
            return UpstreamAuthRequired("Hermes asks for a key: set TALARIA_HERMES_API_KEY to its API_SERVER_KEY")
        if type(error) is UpstreamUnreachable:
            names = " and ".join(route.setting for route in api_routes(self._settings))
            return UpstreamUnreachable(
                "Hermes' API server does not answer: start `hermes gateway run` with API_SERVER_ENABLED=true, or set "
                f"{names} to where it is", detail=error.detail,
            )  # fmt: skip
        return error
