"""POST /v1/runs, as hermes-agent 0.19 runs it, and the session streams of newer versions, which are runs as well."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.demo import texts
from app.demo.about import capabilities
from app.demo.stand_in import StandIn, serve_stand_in
from tests.demo.client import Client
from tests.demo.conftest import KEY
from tests.demo.test_routes import error_of

Json = dict[str, Any]
RECORDED = Path(__file__).parents[1] / "hermes_client"
NAMED = {"event", "run_id", "timestamp"}
FIELDS = {
    "message.delta": {"delta"},
    "reasoning.available": {"text"},
    "tool.started": {"tool", "preview"},
    "tool.completed": {"tool", "duration", "error"},
    "approval.request": {
        "command", "description", "pattern_key", "pattern_keys", "allow_permanent", "choices",
    },
    "approval.responded": {"choice", "resolved"},
    "run.completed": {"output", "usage"},
    "run.failed": {"error"},
    "run.cancelled": set(),
}  # fmt: skip


async def begun(http: httpx.AsyncClient, message: str, **fields: Any) -> str:
    answer = await http.post("/v1/runs", json={"input": message} | fields)
    assert (answer.status_code, answer.json()["status"]) == (202, "started")
    return str(answer.json()["run_id"])


@asynccontextmanager
async def heard(http: httpx.AsyncClient, run_id: str) -> AsyncIterator[AsyncIterator[Json]]:
    """The events of a run as they come; the last one is {} for the comment that closes the stream."""
    async with http.stream("GET", f"/v1/runs/{run_id}/events") as response:

        async def events() -> AsyncIterator[Json]:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))
                elif line == ": stream closed":
                    yield {}

        yield events()


async def all_of(http: httpx.AsyncClient, run_id: str) -> list[Json]:
    async with heard(http, run_id) as events:
        return [event async for event in events]


async def status_of(http: httpx.AsyncClient, run_id: str) -> Json:
    status: Json = (await http.get(f"/v1/runs/{run_id}")).json()
    return status


async def test_a_run_with_a_tool_and_an_approval(client: Client) -> None:
    run_id = await begun(client.http, "PRE:running\nAPPROVE:rm a", session_id="label")
    got: list[Json] = []
    async with heard(client.http, run_id) as events:
        async for event in events:
            got.append(event)
            if event.get("event") == "approval.request":
                assert (await status_of(client.http, run_id))["status"] == "waiting_for_approval"
                invalid = await client.http.post(f"/v1/runs/{run_id}/approval", json={"choice": "maybe"})
                assert error_of(invalid) == (400, "invalid_approval_choice")
                answered = await client.http.post(f"/v1/runs/{run_id}/approval", json={"choice": "deny"})
                assert answered.json() == {
                    "object": "hermes.run.approval_response",
                    "run_id": run_id,
                    "choice": "deny",
                    "resolved": 1,
                }
    assert got.pop() == {}
    assert all(set(event) == FIELDS[event["event"]] | NAMED for event in got)
    names = [event["event"] for event in got]
    assert [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name] == [
        "message.delta", "reasoning.available", "tool.started", "approval.request", "approval.responded",
        "tool.completed", "message.delta", "reasoning.available", "run.completed",
    ]  # fmt: skip
    assert next(event for event in got if event["event"] == "tool.completed")["error"] is True
    status = await status_of(client.http, run_id)
    assert (status["status"], status["last_event"], status["session_id"]) == ("completed", "run.completed", "label")
    assert status["output"].startswith("tool said: ")
    assert [row["role"] for row in await client.rows("label")] == ["user", "assistant", "tool", "assistant"]
    late = await client.http.post(f"/v1/runs/{run_id}/approval", json={"choice": "once"})
    assert error_of(late) == (409, "approval_not_active")


async def test_events_have_one_reader(client: Client, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    run_id = await begun(client.http, "gated SAY:one two")
    async with heard(client.http, run_id) as events:
        assert (await anext(events))["delta"] == "one"
        assert error_of(await client.http.get(f"/v1/runs/{run_id}/events")) == (404, "run_not_found")
    await stand_in.agent.until(lambda: not stand_in.agent.open)
    assert error_of(await client.http.get(f"/v1/runs/{run_id}/events")) == (404, "run_not_found")
    stand_in.agent.gate.set()
    await stand_in.agent.idle()
    assert (await status_of(client.http, run_id))["output"] == "one two"


async def test_a_run_is_stopped(client: Client, stand_in: StandIn) -> None:
    stand_in.agent.gate.clear()
    run_id = await begun(client.http, "gated SAY:one two")
    await stand_in.agent.gated()
    waiting = await client.http.post(f"/v1/runs/{run_id}/approval", json={"choice": "once"})
    assert error_of(waiting) == (409, "approval_not_pending")
    assert (await client.http.post(f"/v1/runs/{run_id}/stop")).json() == {"run_id": run_id, "status": "stopping"}
    assert [event.get("event") for event in await all_of(client.http, run_id)][-2:] == ["run.cancelled", None]
    assert (await status_of(client.http, run_id))["status"] == "cancelled"
    assert error_of(await client.http.post(f"/v1/runs/{run_id}/stop")) == (404, "run_not_found")
    assert (await client.rows(run_id))[-1]["content"] == "one"


async def test_what_came_with_a_run_can_be_looked_at(client: Client, stand_in: StandIn) -> None:
    before = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    run_id = await begun(client.http, "SAY:c", conversation_history=before)
    assert stand_in.agent.given == {run_id: before}
    await stand_in.agent.idle()
    assert [row["content"] for row in await client.rows(run_id)] == ["SAY:c", "c"]


async def test_a_run_that_fails(client: Client) -> None:
    run_id = await begun(client.http, "fail")
    assert [event.get("event") for event in await all_of(client.http, run_id)] == ["run.failed", None]
    assert (await status_of(client.http, run_id))["error"] == texts.FAILED


async def test_runs_that_are_refused(client: Client, stand_in: StandIn) -> None:
    assert error_of(await client.http.post("/v1/runs", json={}))[0] == 400
    assert error_of(await client.http.post("/v1/runs", json={"input": "http503"})) == (503, "gateway_draining")
    stand_in.agent.gate.clear()
    for _ in range(10):
        await begun(client.http, "gated SAY:one two")
    assert error_of(await client.http.post("/v1/runs", json={"input": "x"})) == (429, "rate_limit_exceeded")
    for path in ("", "/events"):
        assert error_of(await client.http.get(f"/v1/runs/none{path}")) == (404, "run_not_found")


async def test_nobody_can_be_asked_over_the_session_stream(client: Client) -> None:
    stream = await client.ask("clean up")
    assert stream.text.endswith(texts.CLEAN_UP_ENDS["pending"])
    (result,) = [json.loads(row["content"]) for row in await client.rows() if row["role"] == "tool"]
    assert (result["status"], result["command"]) == ("pending_approval", texts.CLEAN_UP_COMMAND)
    asked = await client.ask("help me choose")
    assert asked.text.endswith("Which colour should the sandals have?\n- Gold\n- Blue\n- Red")
    assert not asked.all("tool.started")
    assert (await client.rows())[-1]["reasoning"] == texts.CHOOSE_THOUGHT


@asynccontextmanager
async def version(name: str) -> AsyncIterator[tuple[Client, StandIn]]:
    """A stand-in with the capabilities that another version was recorded to have."""
    recorded = json.loads((RECORDED / f"capabilities_{name}.json").read_text())
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        serve_stand_in(KEY, delay_s=0, capabilities=recorded) as served,
        httpx.AsyncClient(base_url=served.url, headers=headers) as http,
    ):
        assert (await http.get("/v1/capabilities")).json() == recorded
        yield await Client.with_session(http), served


@pytest.mark.parametrize(
    ("name", "end", "interrupted"), [("0_20", "run.completed", False), ("0_22", "run.cancelled", True)]
)
async def test_newer_session_streams_can_be_stopped(name: str, end: str, interrupted: bool) -> None:
    async with version(name) as (client, served):
        served.agent.gate.clear()
        async with client.begin("gated SAY:one two") as pieces:
            async for piece in pieces:
                if b'"delta":"one"' in piece:
                    break
            run_id = json.loads(piece.split(b"data: ")[1])["run_id"]
            assert (await status_of(client.http, run_id))["status"] == "running"
            assert (await client.http.post(f"/v1/runs/{run_id}/stop")).status_code == 200
            rest = b"".join([piece async for piece in pieces]).decode().split("\n\n")
        events = {block.split("\n")[0]: json.loads(block.split("data: ")[1]) for block in rest if block}
        assert list(events) == [f"event: {name}" for name in ("assistant.completed", end, "done")]
        completed = events["event: assistant.completed"]
        assert (completed["interrupted"], completed["content"]) == (interrupted, "one")


@pytest.mark.parametrize("name", ["0_20", "0_22"])
async def test_leaving_a_newer_session_stream_interrupts_its_turn(name: str) -> None:
    async with version(name) as (client, served):
        served.agent.gate.clear()
        async with client.begin("gated SAY:one two") as pieces:
            async for piece in pieces:
                if b'"delta":"one"' in piece:
                    break
        await served.agent.idle()
        assert (await client.told())[-1] == ("assistant", "one")


async def test_the_newest_session_stream_asks() -> None:
    async with version("0_22") as (client, _):
        async with client.begin("APPROVE:rm a") as pieces:
            async for piece in pieces:
                if piece.startswith(b"event: approval.request"):
                    break
            asked = json.loads(piece.split(b"data: ")[1])
            assert (asked["command"], asked["choices"]) == ("rm a", ["once", "session", "always", "deny"])
            await client.http.post(f"/v1/runs/{asked['run_id']}/approval", json={"choice": "once"})
            rest = b"".join([piece async for piece in pieces])
        assert b"event: run.completed" in rest


async def test_what_is_switched_off_is_not_there() -> None:
    off = {"run_submission", "chat_completions", "session_chat_streaming"}
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        serve_stand_in(KEY, delay_s=0, capabilities=capabilities(without=off)) as served,
        httpx.AsyncClient(base_url=served.url, headers=headers) as http,
    ):
        client = await Client.with_session(http)
        features = (await http.get("/v1/capabilities")).json()["features"]
        assert not any(features[name] for name in off)
        for path in ("/v1/runs", "/v1/chat/completions", f"{client.session}/chat/stream"):
            assert (await http.post(path, json={"input": "x"})).status_code == 404
