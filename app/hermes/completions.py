"""Turns over chat completions: what a Hermes offers that offers nothing better."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.hermes.api import HermesApi
from app.hermes.choice import offers_completions
from app.hermes.errors import HistoryHidden, RouteMissing, SessionNotFound, UpstreamUnsupported
from app.hermes.events import read
from app.hermes.lease import Lease
from app.hermes.upstream import Event, Followed, Hearer, Json, Order
from app.wire.sse import SseEvent

SESSION_HEADER = "X-Hermes-Session-Id"
_USAGE = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "total_tokens": "total_tokens"}


class Completions:
    """A turn lives as long as its stream: dropping that interrupts it, which is also the way to stop it."""

    kind = "completions"
    poll_s = (2.0, 10.0)

    def __init__(self, api: HermesApi) -> None:
        self._api = api
        self._open: dict[str, asyncio.Timeout] = {}  # by session

    async def create(self, order: Order) -> Json:
        """Hermes takes any id that it does not know for a new conversation."""
        if "session_create" in (await self._api.capabilities()).endpoints:
            return await self._api.session_for(order)
        return {"id": f"talaria-{uuid.uuid4().hex}"}

    async def bind(self, lease: Lease) -> Lease:
        capabilities = await self._api.capabilities()
        if not offers_completions(capabilities):
            raise UpstreamUnsupported("this Hermes does not offer chat completions that continue a conversation")
        if not lease.session_id.isprintable() or lease.session_id != lease.session_id.strip():
            raise SessionNotFound()  # no header could carry it
        return replace(lease, endpoint=capabilities.path("chat_completions"), drop_interrupts=True)

    async def run(self, lease: Lease, order: Order, hearer: Hearer) -> None:
        session_id = await self._now(lease)
        moved = {} if session_id == lease.session_id else {"session_id": session_id}
        body = {"stream": True, "messages": [{"role": "user", "content": order.message}]}
        body |= {"model": order.model} if order.model else {}

        def take(events: Sequence[SseEvent]) -> None:
            hearer.events([told for event in events for told in _told(read(event), moved)])

        try:
            async with asyncio.timeout(None) as stream:
                self._open[lease.session_id] = stream
                await self._api.stream(lease, body, take, hearer.accepted, {SESSION_HEADER: session_id})
        except TimeoutError:  # set off by `stop`
            hearer.events([("run.cancelled", {}), ("done", {})])
        finally:
            self._open.pop(lease.session_id, None)

    async def _now(self, lease: Lease) -> str:
        """Hermes would read the history of the session named, also when it has compressed it into another."""
        try:
            return (await self._api.transcript(lease.session_id, lease.profile))[0]
        except (SessionNotFound, RouteMissing, HistoryHidden):
            return lease.session_id

    async def follow(self, lease: Lease, order: Order, hearer: Hearer) -> Followed:
        return Followed.GONE

    async def stop(self, lease: Lease) -> bool:
        stream = self._open.get(lease.session_id)
        if stream is not None:
            stream.reschedule(asyncio.get_running_loop().time())
        return stream is not None

    async def decide(self, lease: Lease, choice: str) -> int:
        raise UpstreamUnsupported("Hermes asks for no approvals in chat completions")

    async def answer(self, lease: Lease, request_id: str, text: str) -> bool:
        raise UpstreamUnsupported("Hermes asks no questions in chat completions")


def _told(event: Event, moved: Json) -> Sequence[Event]:
    name, body = event
    if body is None or name == "done":
        return (event,)
    if name == "hermes.tool.progress":
        return (_tool(body),)
    if name != "message":
        return (event,)
    choice = _first(body.get("choices"))
    delta, finish = choice.get("delta"), choice.get("finish_reason")
    said: list[Event] = []
    if isinstance(delta, Mapping):
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            said.append(("reasoning.delta", {"delta": thought}))
        if words := delta.get("content"):
            said.append(("assistant.delta", {"delta": words}))
    if finish is not None:
        said.append(_ended(finish, body, moved))
    return said


def _tool(body: Json) -> Event:
    tool = {"tool_id": body.get("toolCallId"), "tool_name": body.get("tool")}
    if body.get("status") == "running":
        return "tool.started", tool | {"preview": body.get("label")}
    return "tool.completed", tool


def _ended(finish: Any, body: Json, moved: Json) -> Event:
    if finish == "error":
        said, hermes = body.get("error"), body.get("hermes")
        words = said.get("message") if isinstance(said, Mapping) else said
        return "run.failed", {"error": words or (hermes.get("error") if isinstance(hermes, Mapping) else None)}
    usage = body.get("usage")
    counted = {_USAGE[key]: n for key, n in usage.items() if key in _USAGE} if isinstance(usage, Mapping) else None
    return "run.completed", {"completed": finish == "stop", "usage": counted} | moved


def _first(choices: Any) -> Mapping[str, Any]:
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, Mapping) else {}
