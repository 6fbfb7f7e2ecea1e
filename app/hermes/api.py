"""The API server of Hermes: its JSON routes over one pooled client, and the stream of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from app.hermes.capabilities import ENDPOINTS, Capabilities, parse_capabilities
from app.hermes.errors import (
    RouteMissing,
    StreamBroken,
    UpstreamAuthRequired,
    UpstreamError,
    UpstreamInvalid,
    UpstreamOff,
    UpstreamUnreachable,
    refusal_of,
)
from app.hermes.lease import Lease, ProcessMark
from app.hermes.routes import Route, api_route
from app.hermes.stream import CONNECT_S, Sink, post_events
from app.settings import HermesSettings

READ_S = 30.0  # Hermes reads its own database for these; above it is stuck
MAX_ID = 256  # characters of a session's id: every frame of its turns carries it
MAX_ANSWER = 64 * 1024 * 1024  # bytes; the rows of a very long conversation come in one answer

# Few, and kept: opening a connection costs the relay more than a request on one that is open.
_POOL = httpx.Limits(max_connections=16, max_keepalive_connections=16, keepalive_expiry=60.0)
_FORGET = (UpstreamUnreachable, UpstreamAuthRequired, StreamBroken)

Json = dict[str, Any]


class HermesApi:
    """Every call raises UpstreamError. `failed` is told when Hermes cannot be reached or refuses the key."""

    def __init__(self, settings: HermesSettings, failed: Callable[[UpstreamError], None] = lambda _: None) -> None:
        self._settings = settings
        self._failed = failed
        self._capabilities: Capabilities | None = None
        self._probing = asyncio.Lock()
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            limits=_POOL,
            follow_redirects=False,
            trust_env=False,
            headers={"User-Agent": "talaria", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        await self._client.aclose()

    @property
    def is_off(self) -> bool:
        return not self._settings.hermes_api_url

    def route(self) -> Route:
        """Raises UpstreamOff, UpstreamInsecure, Misconfigured."""
        if (route := api_route(self._settings)) is None:
            raise UpstreamOff()
        return route

    # what it is

    async def capabilities(self, *, fresh: bool = False) -> Capabilities:
        """Asked once, and again after a failure."""
        async with self._probing:
            if fresh or self._capabilities is None:
                version = (await self._json("GET", ENDPOINTS["health"])).get("version")
                version = version if isinstance(version, str) else None
                try:
                    answer = await self._json("GET", "/v1/capabilities")
                except RouteMissing:
                    self._capabilities = Capabilities(known=False, version=version)
                else:
                    self._capabilities = parse_capabilities(answer, version)
            return self._capabilities

    async def mark(self) -> ProcessMark | None:
        """Which process answers; None where this Hermes does not say."""
        path = (await self.capabilities()).path("health_detailed")
        try:
            answer = await self._json("GET", path)
        except RouteMissing:
            return None
        platforms = answer.get("platforms")
        server = platforms.get("api_server") if isinstance(platforms, Mapping) else None
        pid = answer.get("pid")
        at = server.get("updated_at") if isinstance(server, Mapping) else None
        return ProcessMark(pid if isinstance(pid, int) else None, None if at is None else str(at))

    # conversations

    async def create_session(
        self, *, title: str | None = None, model: str | None = None, profile: str | None = None
    ) -> Json:
        """The new session's object; its `id` is a non-empty string."""
        wanted = {"title": title, "model": model}
        path = (await self.capabilities()).path("session_create")
        answer = await self._json(
            "POST", path, body={k: v for k, v in wanted.items() if v is not None}, profile=profile
        )
        session = answer.get("session", answer)
        id = session.get("id") if isinstance(session, dict) else None
        if not isinstance(id, str) or not 0 < len(id) <= MAX_ID:
            raise UpstreamInvalid("Hermes made a conversation without an id")
        return dict(session)

    async def list_sessions(self, limit: int, offset: int) -> tuple[list[Json], bool]:
        """A page of sessions, the last used first, and whether there are more."""
        path = (await self.capabilities()).path("sessions")
        answer = await self._json("GET", path, params={"limit": limit, "offset": offset})
        return _objects(answer), answer.get("has_more") is True

    async def messages(self, session_id: str, profile: str | None = None) -> list[Json]:
        """All rows of a session in order. Raises SessionNotFound."""
        path = (await self.capabilities()).path("session_messages", session_id=session_id)
        return _objects(await self._json("GET", path, profile=profile))

    # a turn

    async def stream(self, lease: Lease, body: Json, sink: Sink, opened: Callable[[], None]) -> None:
        """POST to the endpoint of the lease and read to the end of its stream. See `post_events` for what it raises."""
        path = _of_profile(lease.profile, lease.endpoint)
        try:
            await post_events(self.route(), path, orjson.dumps(body), sink, opened=opened)
        except UpstreamError as exc:
            self._note(exc)
            raise

    async def stop_run(self, lease: Lease) -> None:
        path = (await self.capabilities()).path("run_stop", run_id=lease.run_id or "")
        await self._json("POST", path, body={}, profile=lease.profile)

    async def decide_run(self, lease: Lease, choice: str) -> int:
        """How many approvals it resolved."""
        path = (await self.capabilities()).path("run_approval", run_id=lease.run_id or "")
        answer = await self._json("POST", path, body={"choice": choice}, profile=lease.profile)
        resolved = answer.get("resolved")
        return resolved if isinstance(resolved, int) else 0

    # requests

    async def _json(
        self, method: str, path: str, *, params: Mapping[str, int] | None = None, body: Json | None = None,
        profile: str | None = None,
    ) -> Json:  # fmt: skip
        route = self.route()
        request = self._client.build_request(
            method, f"{route.base}{_of_profile(profile, path)}", params=params, json=body, headers=route.headers
        )  # fmt: skip
        try:
            status, retry_after, raw = await self._send(request)
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            self._note(unreachable := UpstreamUnreachable(detail=type(exc).__name__))
            raise unreachable from exc
        if not 200 <= status < 300:
            self._note(refusal := refusal_of(status, raw, retry_after))
            raise refusal
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError as exc:
            raise UpstreamInvalid("Hermes did not answer with JSON") from exc
        if not isinstance(answer, dict):
            raise UpstreamInvalid("Hermes did not answer with a JSON object")
        return answer

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

    def _note(self, error: UpstreamError) -> None:
        """After any of these another Hermes may be there: what was known of it is forgotten."""
        if isinstance(error, _FORGET):
            self._capabilities = None
            self._failed(error)


def _of_profile(profile: str | None, path: str) -> str:
    return path if profile is None else f"/p/{quote(profile, safe='')}{path}"


def _objects(answer: Json) -> list[Json]:
    data = answer.get("data")
    if not isinstance(data, list):
        raise UpstreamInvalid("Hermes answered without a list")
    return [row for row in data if isinstance(row, dict)]
