"""Who may call /mcp, and what is refused before the protocol begins."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api import for_host, messages
from app.sessions.operator import LinkToken
from tests.api.conftest import PROXY, client_of
from tests.bridge.phone_simulator import simulated
from tests.relay import RunningRelay, running, settings_for

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def link(relay: RunningRelay) -> dict[str, str]:
    return {"Authorization": f"Bearer {LinkToken.load(relay.relay.settings.server.data_dir).read()}"}


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["x-talaria-error"] == answer.json()["error"]["code"]
    return answer.status_code, answer.json()["error"]["code"]


async def test_the_operator_and_the_link_may_and_nobody_else(relay: RunningRelay, http: httpx.AsyncClient) -> None:
    phone = await relay.connect()
    for headers in (relay.operator(), link(relay)):
        answer = await http.post("/mcp", json=LIST, headers=ACCEPT | headers)
        assert (answer.status_code, "screenshot" in answer.text) == (200, True)
    bearers: list[dict[str, str]] = [{}, {"Authorization": f"Bearer {phone.token}"}, {"Authorization": "Bearer guess"}]
    for headers in bearers:
        for answer in (
            await http.post("/mcp", json=LIST, headers=ACCEPT | headers),
            await http.post("/mcp", content=b"not json", headers=headers),
            await http.get("/mcp", headers=headers),
        ):
            assert code(answer) == (401, "host_required")


async def test_guesses_are_counted(tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, **PROXY)) as relay, client_of(relay) as http:
        told = []
        for guess in range(6):
            headers = {"Authorization": f"Bearer no{guess}", "X-Forwarded-For": "198.51.100.7"}
            told.append(code(await http.post("/mcp", json=LIST, headers=headers)))
    assert told == [(401, "host_required")] * 5 + [(429, "rate_limited")]


async def test_names_and_origins_are_those_of_the_relay(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PUBLIC_URL="https://home.example", ALLOWED_HOSTS="Nas.local")
    async with running(settings) as relay, client_of(relay, headers=ACCEPT | relay.operator()) as http:
        for name in ("home.example", "home.example:8443", "nas.local", "NAS.local:1", "localhost:9", "[::1]:9"):
            answer = await http.post("/mcp", json=LIST, headers={"Host": name})
            assert answer.status_code == 200, (name, answer.text)
        for name in ("elsewhere.example", "home.example.elsewhere.example"):
            assert code(await http.post("/mcp", json=LIST, headers={"Host": name})) == (421, "host_unknown")
        good = await http.post("/mcp", json=LIST, headers={"Origin": "https://home.example"})
        bad = await http.post("/mcp", json=LIST, headers={"Origin": "https://elsewhere.example"})
        assert (good.status_code, code(bad)) == (200, (403, "origin_refused"))


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT"])
async def test_there_is_no_stream_and_no_session(method: str, operator: httpx.AsyncClient) -> None:
    answer = await operator.request(method, "/mcp", headers=ACCEPT)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.headers["x-talaria-error"] == "method_not_allowed"


async def test_a_body_has_a_bound(operator: httpx.AsyncClient) -> None:
    body = b" " * (messages.MAX_BODY + 1)
    assert code(await operator.post("/mcp", content=body)) == (413, "body_too_large")

    async def pieces() -> Any:
        yield body[: len(body) // 2]
        yield body[len(body) // 2 :]

    assert code(await operator.post("/mcp", content=pieces())) == (413, "body_too_large")


async def test_what_is_no_request_is_refused_in_the_protocol_s_words(operator: httpx.AsyncClient) -> None:
    bodies = [b"", b"{", b"[]", b"7", b'{"jsonrpc":"2.0"}', b"[" * 100_000, b"\xff", b"\x00" * 9]
    versions: list[dict[str, str]] = [{}, *({"MCP-Protocol-Version": one} for one in ("2026-07-28", "nonsense"))]
    for version in versions:
        for body in bodies:
            headers = ACCEPT | version | {"Content-Type": "application/json"}
            answer = await operator.post("/mcp", content=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"] < 0) == (400, True), (version, body[:20])
    assert (await operator.post("/mcp", json=LIST, headers=ACCEPT)).status_code == 200


async def test_requests_at_once_are_bounded(
    relay: RunningRelay, operator: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(for_host, "AT_ONCE", 2)
    async with simulated(relay) as simulator:
        simulator.silent = True
        ping = call("ping")
        waiting = [asyncio.ensure_future(operator.post("/mcp", json=ping, headers=ACCEPT)) for _ in range(2)]
        while len(simulator.heard) < 2:
            await simulator.command()
        refused = await operator.post("/mcp", json=LIST, headers=ACCEPT)
        assert (code(refused), refused.headers["retry-after"]) == ((503, "overloaded"), "1")
        for command in simulator.heard:
            await simulator.respond(command["request_id"], 200, {"ok": True})
        assert [(await one).status_code for one in waiting] == [200, 200]
        assert (await operator.post("/mcp", json=LIST, headers=ACCEPT)).status_code == 200
