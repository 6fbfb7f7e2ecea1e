"""Turns over the streamed chat of a session: what every Hermes since 0.19 offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.errors import RelayError
from app.hermes.api import HermesApi
from app.hermes.errors import UpstreamUnsupported
from app.hermes.events import read
from app.hermes.lease import Lease
from app.hermes.stream import Sink
from app.hermes.upstream import Event, Followed, Hearer, Json, Order, Passed
from app.wire.sse import SseEvent

SESSION_KEY = "X-Hermes-Session-Key"


class SessionStream:
    """Until 0.19 a turn runs on when its stream is dropped, and nothing stops it.

    Since 0.20 the drop interrupts it, and its run may be stopped; since 0.22 it asks for approvals.
    """

    kind = "session_stream"
    poll_s = (2.0, 10.0)

    def __init__(self, api: HermesApi) -> None:
        self._api = api
        self._stopped: set[str] = set()  # runs that were asked to stop: they say "completed" all the same

    async def create(self, order: Order) -> Json:
        return await self._api.session_for(order)

    async def bind(self, lease: Lease) -> Lease:
        capabilities = await self._api.capabilities()
        if not capabilities.allows("session_chat_streaming"):
            raise UpstreamUnsupported("this Hermes does not offer streamed chat in sessions: 0.19 or newer is needed")
        endpoint = capabilities.path("session_chat_stream", session_id=lease.session_id)
        return replace(lease, endpoint=endpoint, drop_interrupts=capabilities.drop_interrupts)

    async def run(self, lease: Lease, order: Order, hearer: Hearer) -> None:
        mine: set[str] = set()

        def take(events: Sequence[SseEvent]) -> None:
            told = []
            for event in map(read, events):
                if event[0] == "run.started" and event[1] is not None:
                    mine.add(str(event[1].get("run_id")))
                told.append(self._told(event, lease, hearer))
            hearer.events(told)

        try:
            await self._post(lease, order, take, hearer)
        finally:
            self._stopped -= mine

    async def _post(self, lease: Lease, order: Order, sink: Sink, hearer: Hearer) -> None:
        """With what its caller gave besides, and for the caller's ears, where it came over Hermes' own API."""
        passed = order.passed or Passed({})
        headers = {SESSION_KEY: passed.session_key} if passed.session_key is not None else None
        body, listener = {**passed.body, "message": order.message}, passed.listener
        try:
            await self._api.stream(lease, body, sink, hearer.accepted, headers, listener)
        except RelayError as exc:
            if listener is not None:
                listener.ended(exc)
            raise

    def _told(self, event: Event, lease: Lease, hearer: Hearer) -> Event:
        name, body = event
        if name == "assistant.delta" or body is None:
            return event
        if name == "run.started" and lease.drop_interrupts and isinstance(body.get("run_id"), str):
            hearer.accepted(body["run_id"])
        elif name == "run.completed" and body.get("run_id") in self._stopped:
            return name, body | {"interrupted": True}
        return event

    async def follow(self, lease: Lease, order: Order, hearer: Hearer) -> Followed:
        if lease.drop_interrupts:
            return Followed.GONE
        return Followed.GONE if await self._api.restarted(lease) else Followed.UNKNOWN

    async def stop(self, lease: Lease) -> bool:
        if lease.run_id is None:
            return False
        stopping = await self._api.stop_run(lease)
        if stopping:
            self._stopped.add(lease.run_id)
        return stopping

    async def decide(self, lease: Lease, choice: str) -> int:
        return await self._api.decide_run(lease, choice)

    async def answer(self, lease: Lease, request_id: str, text: str) -> bool:
        raise UpstreamUnsupported("Hermes asks no questions over its session stream")
