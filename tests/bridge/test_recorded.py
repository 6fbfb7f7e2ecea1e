"""Exchanges recorded at hermes-relay, asked of this relay: the same requests, the same answers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.bridge.phone_simulator import simulated
from tests.relay import RunningRelay

# (method, path, body) → what the phone gets as (method, path, params, body), what it answers, and what the caller gets.
COMMANDS: list[tuple[Any, ...]] = [
    (
        ("POST", "/tap", {"x": 512, "y": 1024, "device": "pixel"}),
        {"method": "POST", "path": "/tap", "params": {}, "body": {"x": 512, "y": 1024}},
        (200, {"ok": True, "echo": {"x": 512, "y": 1024}}),
        (200, {"ok": True, "echo": {"x": 512, "y": 1024}}),
    ),
    (
        ("GET", "/screen?include_bounds=true&device=phone", None),
        {
            "method": "GET", "path": "/screen", "params": {"include_bounds": "true"},
            "body": {"include_bounds": "true"},
        },
        (200, {"ok": True, "echo": {"include_bounds": "true"}}),
        (200, {"ok": True, "echo": {"include_bounds": "true"}}),
    ),
    (
        ("POST", "/type", {"text": "pw", "password": "hunter2"}),
        {"method": "POST", "path": "/type", "params": {}, "body": {"text": "pw", "password": "hunter2"}},
        (403, {"error": "Bridge capability is not granted", "error_code": "bridge_capability_denied"}),
        (403, {"error": "Bridge capability is not granted", "error_code": "bridge_capability_denied"}),
    ),
    (
        ("GET", "/clipboard", None), {"method": "GET", "path": "/clipboard", "params": {}, "body": {}},
        (200, {"ok": True, "echo": {}}), (200, {"ok": True, "echo": {}}),
    ),
    (
        ("POST", "/clipboard", {"text": "t"}),
        {"method": "POST", "path": "/clipboard", "params": {}, "body": {"text": "t"}},
        (200, {"ok": True, "echo": {"text": "t"}}), (200, {"ok": True, "echo": {"text": "t"}}),
    ),
    (
        ("GET", "/events?limit=5&since=0&token=SECRET", None),
        {
            "method": "GET", "path": "/events", "params": {"limit": "5", "since": "0", "token": "SECRET"},
            "body": {"limit": "5", "since": "0", "token": "SECRET"},
        },
        ("weird", 7), (200, {"value": 7}),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "command", "response", "answer"), COMMANDS, ids=lambda value: str(value)[:30])
async def test_a_command_is_passed_on_and_answered_as_recorded(
    relay: RunningRelay, request_: Any, command: Any, response: Any, answer: Any
) -> None:
    async with simulated(relay) as phone, httpx.AsyncClient(base_url=relay.url) as http:
        phone.replies[command["path"]] = lambda body: response
        bearer = {"Authorization": f"Bearer {phone.phone.token}"}
        method, path, body = request_
        found = await http.request(method, path, headers=bearer, json=body)
        assert (found.status_code, found.json()) == answer
        (heard,) = phone.heard
        assert {name: value for name, value in heard.items() if name != "request_id"} == command


async def test_who_may_not_ask_is_told_in_a_line_of_text(relay: RunningRelay) -> None:
    async with httpx.AsyncClient(base_url=relay.url) as http:
        found = await http.get("/ping")
        assert (found.status_code, found.text) == (401, "Authorization: Bearer <session_token> required")
        assert found.headers["content-type"].startswith("text/plain")
        assert found.headers["x-talaria-error"] == "session_required"
        offer = await relay.relay.pairing.mint(grants={"chat": None})
        phone = await relay.connect(pairing_code=offer.code)
        found = await http.post("/tap", json={}, headers={"Authorization": f"Bearer {phone.token}"})
        assert (found.status_code, found.text) == (403, "active bridge grant required")
        assert found.headers["x-talaria-error"] == "grant_missing"


async def test_without_a_phone(relay: RunningRelay) -> None:
    async with httpx.AsyncClient(base_url=relay.url, headers=relay.operator()) as http:
        found = await http.get("/bridge/status")
        assert (found.status_code, found.json()) == (
            503, {"phone_connected": False, "last_seen_seconds_ago": None, "error": "no phone connected"},
        )  # fmt: skip
        found = await http.get("/ping")
        assert (found.status_code, found.json()) == (
            503, {"error": "No phone connected. Open the Hermes app on your phone and connect."},
        )  # fmt: skip
        assert found.headers["x-talaria-error"] == "device_offline"
