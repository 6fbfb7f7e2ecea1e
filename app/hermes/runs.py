"""Turns as runs: the one way over the API server in which Hermes 0.19 asks for approvals, and stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.errors import OutcomeUncertain
from app.hermes.api import HermesApi
from app.hermes.choice import offers_runs
from app.hermes.errors import RunNotFound, StreamBroken, UpstreamError, UpstreamInvalid, UpstreamUnsupported
from app.hermes.events import read
from app.hermes.lease import Lease
from app.hermes.upstream import Event, Followed, Hearer, Json, Order
from app.wire.sse import SseEvent


class Runs:
    """A run goes on without its stream, which has one reader and cannot be taken up again: its status is asked for."""

    kind = "runs"
    poll_s = (1.0, 5.0)

    def __init__(self, api: HermesApi) -> None:
        self._api = api

    async def create(self, order: Order) -> Json:
        return await self._api.session_for(order)

    async def bind(self, lease: Lease) -> Lease:
        capabilities = await self._api.capabilities()
        if not offers_runs(capabilities):
            raise UpstreamUnsupported("this Hermes does not offer runs: 0.19 or newer is needed")
        return replace(lease, endpoint=capabilities.path("runs"), drop_interrupts=False)

    async def run(self, lease: Lease, order: Order, hearer: Hearer) -> None:
        session_id, rows = await self._api.transcript(lease.session_id, lease.profile)
        moved = {} if session_id == lease.session_id else {"session_id": session_id}
        run_id = await self._submit(lease, order, session_id, rows)
        hearer.accepted(run_id)

        def take(events: Sequence[SseEvent]) -> None:
            hearer.events([told for event in events for told in _told(read(event), moved)])

        path = (await self._api.capabilities()).path("run_events", run_id=run_id)
        try:
            await self._api.listen(lease, path, take)
        except (StreamBroken, UpstreamInvalid):
            raise
        except UpstreamError as exc:  # whatever it is, the run goes on
            raise StreamBroken(exc.message, detail=exc.detail) from exc

    async def _submit(self, lease: Lease, order: Order, session_id: str, rows: Sequence[Json]) -> str:
        """A run knows nothing of its session but the id: what was said before is sent along."""
        message = order.message
        body = {
            "input": message if isinstance(message, str) else [{"role": "user", "content": message}],
            "session_id": session_id, "conversation_history": history(rows),
        } | ({"model": order.model} if order.model else {})  # fmt: skip
        try:
            answer = await self._api.call(
                "POST", lease.endpoint, body=body, profile=lease.profile, once=True, route=self._api.route_of(lease)
            )
        except OutcomeUncertain as exc:
            raise StreamBroken("Hermes broke off before it said whether it has the message", detail=exc.detail) from exc
        run_id = answer.get("run_id")
        if not isinstance(run_id, str) or not run_id:
            raise UpstreamInvalid("Hermes began a run without an id")
        return run_id

    async def follow(self, lease: Lease, order: Order, hearer: Hearer) -> Followed:
        if lease.run_id is None:
            return Followed.GONE if await self._api.restarted(lease) else Followed.UNKNOWN
        path = (await self._api.capabilities()).path("run_status", run_id=lease.run_id)
        try:
            run = await self._api.call("GET", path, profile=lease.profile)
        except RunNotFound:
            return Followed.GONE if await self._api.restarted(lease) else Followed.UNKNOWN
        event = f"run.{run.get('status')}"
        if event == "run.cancelled":  # by its owner or by another; how far it came, the history knows
            return Followed.GONE
        if event not in _ENDS:
            return Followed.RUNNING
        hearer.events(_ended(event, run, {}))
        return Followed.ENDED

    async def stop(self, lease: Lease) -> bool:
        return lease.run_id is not None and await self._api.stop_run(lease)

    async def decide(self, lease: Lease, choice: str) -> int:
        return await self._api.decide_run(lease, choice)

    async def answer(self, lease: Lease, request_id: str, text: str) -> bool:
        raise UpstreamUnsupported("Hermes asks no questions in its runs")


def history(rows: Sequence[Json]) -> list[Json]:
    """What both sides said, as {role, content: text}. One speaker's rows on end, as around a tool call, are one."""
    said: list[Json] = []
    for row in rows:
        role, words = row.get("role"), _words(row.get("content"))
        if role not in ("user", "assistant") or not words:
            continue
        if said and said[-1]["role"] == role:
            said[-1]["content"] += f"\n\n{words}"
        else:
            said.append({"role": role, "content": words})
    return said


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


_ENDS = ("run.completed", "run.failed", "run.cancelled")


def _told(event: Event, moved: Json) -> Sequence[Event]:
    _, body = event
    if body is None:
        return (event,)
    match name := body.get("event"):
        case "message.delta":
            return (("assistant.delta", _of(body, "delta")),)
        case "reasoning.available":  # a copy of the answer, whatever its name says
            return ()
        case "tool.started":
            return ((name, _of(body, "preview", tool_name="tool")),)
        case "tool.completed":
            how = "tool.failed" if body.get("error") is True else name
            return ((how, _of(body, tool_name="tool", duration_s="duration")),)
        case "approval.request":
            return ((name, _of(body, "command", "description", "choices", "timeout_s")),)
        case str() if name in _ENDS:
            return _ended(name, body, moved)
        case str():
            return ((name, {key: value for key, value in body.items() if key not in ("event", "timestamp")}),)
    return (("", None),)


def _ended(name: str, said: Mapping[str, Any], moved: Json) -> list[Event]:
    """An event and a status say the end in the same words. `output` is the last of the answer's segments."""
    done: Event = ("done", {})
    if name != "run.completed":
        return [(name, _of(said, "error")), done]
    return [
        ("assistant.completed", _of(said, content="output") | moved),
        (name, {"completed": True} | _of(said, "usage") | moved),
        done,
    ]


def _of(body: Mapping[str, Any], *same: str, **renamed: str) -> Json:
    """The fields that are there, under our names, with the run they belong to."""
    names = {"run_id": "run_id"} | {name: name for name in same} | renamed
    return {ours: body[theirs] for ours, theirs in names.items() if theirs in body}
