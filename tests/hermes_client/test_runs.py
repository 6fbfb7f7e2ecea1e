"""Runs against answers as Hermes 0.19 was recorded to give them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.errors import OutcomeUncertain
from app.hermes.errors import HistoryHidden, StreamBroken, UpstreamBusy, UpstreamInvalid, UpstreamUnsupported
from app.hermes.hermes import Hermes
from app.hermes.lease import Lease
from app.hermes.runs import Runs, history
from app.hermes.upstream import Followed, Order
from app.settings import HermesSettings
from app.tasks import Supervisor
from tests.hermes_client.canned import answer
from tests.hermes_client.routed import CUT, Heard, Routed, health, refused, routed, said, streamed

ROWS = "GET /api/sessions/s1/messages"
SUBMIT = "POST /v1/runs"
EVENTS = "GET /v1/runs/r1/events"
STATUS = "GET /v1/runs/r1"
STOP = "POST /v1/runs/r1/stop"
DECIDE = "POST /v1/runs/r1/approval"
STARTED = said({"run_id": "r1", "status": "started"}, "202 Accepted")
GONE = refused("404 Not Found", "run_not_found")
USAGE = {"input_tokens": 25539, "output_tokens": 21, "total_tokens": 25560}


def rows(*contents: tuple[str, Any], session_id: str = "s1") -> bytes:
    data = [{"id": n, "role": role, "content": content} for n, (role, content) in enumerate(contents, 1)]
    return said({"object": "list", "session_id": session_id, "data": data})


def event(name: str, **fields: Any) -> str:
    return "data: " + json.dumps({"event": name, "run_id": "r1", "timestamp": 1796052040.7, **fields})


BEGUN: Mapping[str, Sequence[bytes]] = {ROWS: [rows()], SUBMIT: [STARTED]}


@asynccontextmanager
async def leased(answers: Mapping[str, Sequence[bytes]], **options: Any) -> AsyncIterator[tuple[Routed, Runs, Lease]]:
    async with routed(answers, **options) as server, Supervisor() as tasks:
        settings = HermesSettings(hermes_api_url=server.url)
        async with Hermes(settings, tasks) as hermes:
            runs = hermes.upstream("runs")
            assert isinstance(runs, Runs)
            lease = await hermes.lease(runs, "s1", Order("hi"))
            yield server, runs, replace(lease, run_id="r1")


async def test_a_run_is_told_what_was_said_before() -> None:
    before = rows(
        ("user", "one"), ("assistant", "let me look"), ("tool", "{}"), ("assistant", "found"),
        ("user", [{"type": "text", "text": "see"}, {"type": "image_url"}]), ("assistant", None), ("system", "x"),
    )  # fmt: skip
    async with leased({**BEGUN, ROWS: [before], EVENTS: [streamed(event("run.completed", output="ok"))]}) as (
        server, runs, lease,
    ):  # fmt: skip
        assert (lease.route, lease.endpoint, lease.drop_interrupts) == ("runs", "/v1/runs", False)
        heard = Heard()
        await runs.run(lease, Order("hi", model="m"), heard)
        assert heard.runs == ["r1"]
        assert server.bodies(SUBMIT) == [
            {
                "input": "hi", "session_id": "s1", "model": "m",
                "conversation_history": [
                    {"role": "user", "content": "one"},
                    {"role": "assistant", "content": "let me look\n\nfound"},
                    {"role": "user", "content": "see"},
                ],
            }
        ]  # fmt: skip


async def test_parts_are_one_message_of_the_user() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
    async with leased({**BEGUN, EVENTS: [streamed(event("run.completed", output="ok"))]}) as (server, runs, lease):
        await runs.run(lease, Order(parts), Heard())
        assert server.bodies(SUBMIT)[0]["input"] == [{"role": "user", "content": parts}]


async def test_what_a_run_says_in_our_words() -> None:
    stream = streamed(
        event("message.delta", delta="running"),
        event("reasoning.available", text="running"),
        event("tool.started", tool="terminal", preview="echo hi"),
        ": keepalive",
        event("approval.request", command="rm -rf x", description="delete", pattern_key="k", choices=["once", "deny"]),
        event("approval.responded", choice="once", resolved=1),
        event("tool.completed", tool="terminal", duration=0.013, error=False),
        event("tool.completed", tool="terminal", duration=0.5, error=True),
        event("message.delta", delta="\n\ntool said"),
        event("something.new", much="more"),
        "data: {",
        event("run.completed", output="tool said hi", usage=USAGE),
        ": stream closed",
    )
    async with leased({**BEGUN, EVENTS: [stream]}) as (_, runs, lease):
        heard = Heard()
        await runs.run(lease, Order("hi"), heard)
    run = {"run_id": "r1"}
    asked = {"command": "rm -rf x", "description": "delete", "choices": ["once", "deny"]}
    assert heard.all == [
        ("assistant.delta", run | {"delta": "running"}),
        ("tool.started", run | {"tool_name": "terminal", "preview": "echo hi"}),
        ("approval.request", run | asked),
        ("approval.responded", run | {"choice": "once", "resolved": 1}),
        ("tool.completed", run | {"tool_name": "terminal", "duration_s": 0.013}),
        ("tool.failed", run | {"tool_name": "terminal", "duration_s": 0.5}),
        ("assistant.delta", run | {"delta": "\n\ntool said"}),
        ("something.new", run | {"much": "more"}),
        ("message", None),
        ("assistant.completed", run | {"content": "tool said hi"}),
        ("run.completed", run | {"completed": True, "usage": USAGE}),
        ("done", {}),
    ]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (event("run.failed", error="HTTP 400: no"), ("run.failed", {"run_id": "r1", "error": "HTTP 400: no"})),
        (event("run.cancelled"), ("run.cancelled", {"run_id": "r1"})),
    ],
)
async def test_ends_that_are_no_success(last: str, told: Any) -> None:
    async with leased({**BEGUN, EVENTS: [streamed(last)]}) as (_, runs, lease):
        heard = Heard()
        await runs.run(lease, Order("hi"), heard)
        assert heard.all == [told, ("done", {})]


def session(id: str, *, parent: str | None = None, ended: str | None = None) -> dict[str, Sequence[bytes]]:
    """What Hermes says of a session."""
    described = {"id": id, "parent_session_id": parent, "end_reason": ended}
    return {f"GET /api/sessions/{id}": [said({"object": "hermes.session", "session": described})]}


COMPRESSED = session("s1", ended="compression") | session("s2", parent="s1")
COMPRESSED_TWICE = COMPRESSED | session("s2", parent="s1", ended="compression") | session("s3", parent="s2")
FORKED = session("s1", ended="branched") | session("s2", parent="s1")
FORKED_ONCE_COMPRESSED = COMPRESSED | session("s2", parent="s1", ended="branched") | session("s3", parent="s2")


@pytest.mark.parametrize(("sessions", "now"), [(COMPRESSED, "s2"), (COMPRESSED_TWICE, "s3")])
async def test_a_compressed_conversation_goes_on_where_hermes_went_on(
    sessions: dict[str, Sequence[bytes]], now: str
) -> None:
    stored = {ROWS: [rows(("user", "one"), session_id=now)], EVENTS: [streamed(event("run.completed", output="ok"))]}
    async with leased({**BEGUN, **sessions, **stored}) as (server, runs, lease):
        heard = Heard()
        await runs.run(lease, Order("hi"), heard)
        assert server.bodies(SUBMIT)[0]["session_id"] == now
        assert [body.get("session_id") for _, body in heard.all if body] == [now, now]


@pytest.mark.parametrize(("sessions", "now"), [(FORKED, "s2"), (FORKED_ONCE_COMPRESSED, "s3")])
async def test_the_rows_of_a_fork_are_not_taken_for_those_of_its_parent(
    sessions: dict[str, Sequence[bytes]], now: str
) -> None:
    """0.19 gives them for a conversation that was forked over its API."""
    async with leased({**BEGUN, **sessions, ROWS: [rows(("user", "in the fork"), session_id=now)]}) as (
        server, runs, lease,
    ):  # fmt: skip
        assert lease.last_row == 0
        with pytest.raises(HistoryHidden):
            await runs.run(lease, Order("hi"), Heard())
        assert server.bodies(SUBMIT) == []


@pytest.mark.parametrize(
    "broken",
    [
        {SUBMIT: [CUT]},
        {EVENTS: [CUT]},
        {EVENTS: [GONE]},
        {EVENTS: [streamed(event("message.delta", delta="x"), ends=False)]},
        {EVENTS: [refused("503 Service Unavailable", "gateway_draining")]},
    ],
)
async def test_whatever_breaks_once_hermes_may_have_it_is_a_broken_stream(
    broken: Mapping[str, Sequence[bytes]],
) -> None:
    async with leased({**BEGUN, **broken}) as (server, runs, lease):
        with pytest.raises(StreamBroken):
            await runs.run(lease, Order("hi"), Heard())
        assert len(server.bodies(SUBMIT)) == 1


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (refused("429 Too Many Requests", "rate_limit_exceeded"), UpstreamBusy),
        (said({"status": "started"}), UpstreamInvalid),
        (said({"run_id": 7}), UpstreamInvalid),
    ],
)
async def test_what_hermes_did_not_take(given: bytes, error: type[Exception]) -> None:
    async with leased({**BEGUN, SUBMIT: [given]}) as (_, runs, lease):
        heard = Heard()
        with pytest.raises(error):
            await runs.run(lease, Order("hi"), heard)
        assert heard.runs == []


@pytest.mark.parametrize("status", ["queued", "running", "waiting_for_approval", "stopping", "a new one", None])
async def test_a_run_that_has_not_ended_is_asked_for_again(status: Any) -> None:
    async with leased({ROWS: [rows()], STATUS: [said({"run_id": "r1", "status": status})]}) as (_, runs, lease):
        heard = Heard()
        assert await runs.follow(lease, Order("hi"), heard) is Followed.RUNNING
        assert heard.all == []


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (
            {"status": "completed", "output": "hi", "usage": USAGE, "last_event": "run.completed"},
            [("assistant.completed", {"content": "hi"}), ("run.completed", {"completed": True, "usage": USAGE})],
        ),
        ({"status": "failed", "error": "HTTP 400: no"}, [("run.failed", {"error": "HTTP 400: no"})]),
    ],
)
async def test_a_run_that_ended_without_us_tells_its_end(run: dict[str, Any], told: list[Any]) -> None:
    async with leased({ROWS: [rows()], STATUS: [said({"run_id": "r1", **run})]}) as (_, runs, lease):
        heard = Heard()
        assert await runs.follow(lease, Order("hi"), heard) is Followed.ENDED
        assert heard.all == [*[(name, {"run_id": "r1"} | body) for name, body in told], ("done", {})]


async def test_of_a_run_that_was_cancelled_the_history_knows_the_end() -> None:
    async with leased({ROWS: [rows()], STATUS: [said({"run_id": "r1", "status": "cancelled"})]}) as (_, runs, lease):
        heard = Heard()
        assert await runs.follow(lease, Order("hi"), heard) is Followed.GONE
        assert heard.all == []


@pytest.mark.parametrize("run_id", ["r1", None])
@pytest.mark.parametrize(("pid", "followed"), [(1, Followed.UNKNOWN), (2, Followed.GONE)])
async def test_a_run_that_is_not_known(run_id: str | None, pid: int, followed: Followed) -> None:
    answers = {ROWS: [rows()], STATUS: [GONE], "GET /health/detailed": [health(1), health(pid)]}
    async with leased(answers) as (_, runs, lease):
        assert await runs.follow(replace(lease, run_id=run_id), Order("hi"), Heard()) is followed


async def test_stopping() -> None:
    stopping = said({"run_id": "r1", "status": "stopping"})
    async with leased({ROWS: [rows()], STOP: [stopping, GONE]}) as (_, runs, lease):
        assert await runs.stop(lease)
        assert not await runs.stop(lease)
        assert not await runs.stop(replace(lease, run_id=None))


async def test_deciding() -> None:
    given = [
        said({"resolved": 1}), refused("409 Conflict", "approval_not_pending"),
        refused("409 Conflict", "approval_not_active"), GONE, CUT,
    ]  # fmt: skip
    async with leased({ROWS: [rows()], DECIDE: given}) as (server, runs, lease):
        assert [await runs.decide(lease, "once") for _ in range(4)] == [1, 0, 0, 0]
        with pytest.raises(OutcomeUncertain):
            await runs.decide(lease, "deny")
        assert [body["choice"] for body in server.bodies(DECIDE)] == ["once"] * 4 + ["deny"]
        with pytest.raises(UpstreamUnsupported):
            await runs.answer(lease, "q", "yes")


async def test_a_hermes_without_runs() -> None:
    old = {ROWS: [rows()], "GET /v1/capabilities": [answer("404 Not Found", b"404: Not Found")]}
    with pytest.raises(UpstreamUnsupported):
        async with leased(old):
            pass


def test_a_message_that_got_no_answer_is_part_of_the_next() -> None:
    said = [{"role": "user", "content": "failed"}, {"role": "user", "content": "next"}, {"role": "assistant"}]
    assert history(said) == [{"role": "user", "content": "failed\n\nnext"}]
