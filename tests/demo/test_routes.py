"""Everything around the answers: keys, sessions, refusals, and what the stand-in says about itself."""

from __future__ import annotations

import httpx
import pytest

from app.demo.about import ENDPOINTS
from app.demo.stand_in import StandIn
from tests.demo.client import Client
from tests.demo.conftest import KEY

SESSION = {
    *("id", "source", "user_id", "model", "title", "started_at", "ended_at", "end_reason", "message_count"),
    *("tool_call_count", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "estimated_cost_usd", "actual_cost_usd", "api_call_count", "parent_session_id"),
    *("has_system_prompt", "has_model_config"),
}
ROW = {
    *("id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "token_count"),
    *("finish_reason", "reasoning", "reasoning_content"),
}


def error_of(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error["code"]


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic abc", f"bearer {KEY}", KEY])
async def test_the_key_is_asked_for(stand_in: StandIn, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    refusal = {"message": "Invalid API key", "type": "invalid_request_error", "code": "invalid_api_key"}
    async with httpx.AsyncClient(base_url=stand_in.url, headers=headers) as http:
        for method, path in set(ENDPOINTS.values()) - {("GET", "/health")} | {("GET", "/__stand_in")}:
            answer = await http.request(method, path.format(session_id="x", run_id="x"))
            assert (answer.status_code, answer.json()) == (401, {"error": refusal}), path
        assert (await http.get("/health")).json() == {"status": "ok", "platform": "hermes-agent", "version": "0.19.0"}
        assert (await http.get("/v1/health")).status_code == 200
        assert (await http.get("/nope")).text == "404: Not Found"
    assert stand_in.agent.turns_started == []


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nope"])
async def test_no_browser_gets_in(client: Client, path: str) -> None:
    answer = await client.http.get(path, headers={"Origin": "http://localhost:5173"})
    assert (answer.status_code, answer.content) == (403, b"")
    assert (await client.http.options(path)).status_code == 403


async def test_unknown_routes_and_methods_are_plain_text(client: Client) -> None:
    for method, path, status in [
        ("GET", "/", 404),
        ("GET", "/api/sessions/", 404),
        ("PUT", client.session, 405),
        ("HEAD", "/health", 405),
    ]:
        answer = await client.http.request(method, path)
        assert answer.status_code == status, path
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_the_profile_in_a_path_is_ignored(client: Client) -> None:
    assert (await client.http.get(f"/p/other{client.session}")).json()["session"]["id"] == client.session_id


async def test_capabilities_name_only_what_is_there(client: Client) -> None:
    body = (await client.http.get("/v1/capabilities")).json()
    assert body["object"] == "hermes.api_server.capabilities"
    assert body["auth"] == {"type": "bearer", "required": True}
    assert body["features"]["session_chat_streaming"] is True
    assert body["features"]["responses_api"] is False
    assert body["endpoints"]["session_chat_stream"] == {
        "method": "POST",
        "path": "/api/sessions/{session_id}/chat/stream",
    }
    says = {"message": "SAY:x", "input": "APPROVE2:ls|pwd", "messages": [{"role": "user", "content": "SAY:x"}]}
    bodies = {"POST": says | {"choice": "once"}, "PATCH": {"title": "x"}}
    run_id = (await client.http.post("/v1/runs", json=says)).json()["run_id"]
    while (await client.http.get(f"/v1/runs/{run_id}")).json()["status"] != "waiting_for_approval":
        pass
    for endpoint in sorted(body["endpoints"].values(), key=lambda endpoint: endpoint["path"].endswith("/events")):
        at = (await Client.with_session(client.http)).session_id
        method, path = endpoint["method"], endpoint["path"].format(session_id=at, run_id=run_id)
        assert (await client.http.request(method, path, json=bodies.get(method))).is_success, path
        await client.http.delete(f"/api/sessions/{at}")  # titles are unique


async def test_models_and_detailed_health(client: Client) -> None:
    models = await client.http.get("/v1/models")
    assert [model["id"] for model in models.json()["data"]] == ["hermes-agent"]
    assert models.headers["x-content-type-options"] == "nosniff"
    health = (await client.http.get("/health/detailed")).json()
    assert health["platforms"]["api_server"]["state"] == "connected"
    assert isinstance(health["pid"], int)
    assert (health["active_agents"], health["gateway_state"]) == (0, "running")


async def test_a_session_from_creation_to_deletion(client: Client) -> None:
    http = client.http
    created = await http.post("/api/sessions", json={"id": "my-session", "title": "Mine", "system_prompt": "Arr."})
    assert created.status_code == 201
    session = created.json()["session"]
    assert created.json()["object"] == "hermes.session"
    assert set(session) == SESSION
    assert (session["id"], session["title"], session["has_system_prompt"]) == ("my-session", "Mine", True)
    assert error_of(await http.post("/api/sessions", json={"id": "my-session"})) == (409, "session_exists")
    renamed = await http.patch("/api/sessions/my-session", json={"title": "Ours"})
    assert renamed.json()["session"]["title"] == "Ours"
    deleted = await http.delete("/api/sessions/my-session")
    assert deleted.json() == {"object": "hermes.session.deleted", "id": "my-session", "deleted": True}
    assert error_of(await http.get("/api/sessions/my-session")) == (404, "session_not_found")
    assert error_of(await http.delete("/api/sessions/my-session")) == (404, "session_not_found")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"id": "../../etc/passwd"}, "invalid_session_id"),
        ({"id": "a" * 300}, "invalid_session_id"),
        ({"id": 7}, "invalid_session_id"),
        ({"title": "x" * 101}, "invalid_title"),
        ({"title": "taken"}, "invalid_title"),
    ],
)
async def test_sessions_that_cannot_be_created(client: Client, body: dict[str, object], code: str) -> None:
    await client.http.patch(client.session, json={"title": "taken"})
    assert error_of(await client.http.post("/api/sessions", json=body)) == (400, code)


async def test_only_some_fields_can_be_patched(client: Client) -> None:
    refused = await client.http.patch(client.session, json={"model": "x"})
    assert error_of(refused) == (400, "unsupported_session_field")
    ended = await client.http.patch(client.session, json={"end_reason": "done by client"})
    assert ended.json()["session"]["end_reason"] == "done by client"


async def test_bodies_that_are_no_objects(client: Client) -> None:
    for content in (b"not json", b"", b"[]"):
        assert error_of(await client.http.post("/api/sessions", content=content))[0] == 400


async def test_sessions_are_listed_by_last_use_in_pages(client: Client) -> None:
    other = await Client.with_session(client.http)
    await client.ask("SAY:x")
    body = (await client.http.get("/api/sessions", params={"limit": 1})).json()
    (first,) = body["data"]
    assert (body["object"], body["limit"], body["offset"], body["has_more"]) == ("list", 1, 0, True)
    assert set(first) == SESSION | {"last_active", "preview"}
    assert (first["id"], first["preview"], first["message_count"]) == (client.session_id, "SAY:x", 2)
    body = (await client.http.get("/api/sessions", params={"limit": 1, "offset": 1})).json()
    assert ([session["id"] for session in body["data"]], body["has_more"]) == ([other.session_id], False)
    assert (await client.http.get("/api/sessions", params={"limit": 9999})).json()["limit"] == 200
    assert (await client.http.get("/api/sessions", params={"source": "cron"})).json()["data"] == []


async def test_rows_have_the_fields_of_the_real_ones_and_rising_ids(client: Client) -> None:
    await client.ask("SAY:one")
    await client.ask("tools")
    rows = await client.rows()
    assert all(set(row) == ROW for row in rows)
    ids = [row["id"] for row in rows]
    assert ids == sorted(set(ids))
    session = (await client.http.get(client.session)).json()["session"]
    assert (session["message_count"], session["tool_call_count"], session["api_call_count"]) == (8, 2, 4)
    assert session["output_tokens"] > 0


async def test_a_fork_is_a_copy(client: Client) -> None:
    await client.http.patch(client.session, json={"title": "Road"})
    await client.ask("SAY:x")
    forked = await client.http.post(f"{client.session}/fork", json={})
    child = forked.json()["session"]
    assert forked.status_code == 201
    assert (child["parent_session_id"], child["title"], child["message_count"]) == (client.session_id, "Road #2", 2)
    parent = (await client.http.get(client.session)).json()["session"]
    assert parent["end_reason"] == "branched"
    assert (await client.ask("SAY:y")).text == "y"
    assert [row["content"] for row in await client.rows(child["id"])] == ["SAY:x", "x"]


@pytest.mark.parametrize("body", [{}, {"message": ""}, {"message": []}])
async def test_a_message_is_needed(client: Client, stand_in: StandIn, body: dict[str, object]) -> None:
    assert error_of(await client.http.post(f"{client.session}/chat/stream", json=body)) == (400, "missing_message")
    assert stand_in.agent.turns_started == []


async def test_parts_of_text_and_images_are_taken(client: Client) -> None:
    parts = [
        {"type": "text", "text": "SAY:seen"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
    ]
    answer = await client.http.post(f"{client.session}/chat", json={"message": parts})
    assert answer.json()["message"]["content"] == "seen"
    files = [{"type": "file", "file": {}}]
    refused = await client.http.post(f"{client.session}/chat", json={"message": files})
    assert error_of(refused) == (400, "unsupported_content_type")


async def test_an_unknown_session_gets_no_stream(client: Client) -> None:
    refused = await client.http.post("/api/sessions/none/chat/stream", json={"message": "x"})
    assert error_of(refused) == (404, "session_not_found")


async def test_a_body_that_is_too_large(client: Client) -> None:
    refused = await client.http.post("/api/sessions", content=b"x" * 10_000_001)
    assert error_of(refused) == (413, "body_too_large")
