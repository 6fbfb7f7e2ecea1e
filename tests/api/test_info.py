"""What hermes-relay's clients ask about the relay; `RECORDED` is what its server answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from app.demo.stand_in import serve_stand_in
from tests.api.conftest import client_of
from tests.api.passing import KEY, let_alone, passing
from tests.relay import RunningRelay, running, settings_for

RECORDED: dict[str, Any] = {
    "protocol_version": 1, "profiles": [], "session_count": 1, "paired_device_count": 1, "pending_commands": 0,
    "media_entry_count": 0, "health": "ok",
}  # fmt: skip
KEYS = {
    "version", "plugin_version", "protocol_version", "capabilities", "profiles", "uptime_seconds", "session_count",
    "paired_device_count", "pending_commands", "media_entry_count", "health", "gateway_heartbeat",
    "gateway_prior_exit",
}  # fmt: skip
PATHS = ("/relay/info", "/relay/security", "/context/injected", "/phone/outbound", "/phone/threads")


async def test_info_has_what_was_recorded(http: httpx.AsyncClient, relay: RunningRelay) -> None:
    phone = await relay.connect()
    answer = await http.get("/relay/info", headers={"Authorization": f"Bearer {phone.token}"})
    assert answer.status_code == 200
    found = answer.json()
    assert set(found) >= KEYS
    assert RECORDED.items() <= found.items()
    assert type(found["uptime_seconds"]) is int
    assert {"media", "profiles", "proactive", "notifications"} <= set(found["capabilities"])
    assert found["gateway_heartbeat"] == {"status": "off", "supported": True}
    head = await http.head("/relay/info", headers={"Authorization": f"Bearer {phone.token}"})
    assert (head.status_code, head.content) == (200, b"")


async def test_every_profile_has_what_the_app_cannot_do_without(tmp_path: Path) -> None:
    async with serve_stand_in(KEY) as hermes, passing(hermes.url, tmp_path) as passed:
        await let_alone(passed)
        (profile,) = (await passed.http.get("/relay/info")).json()["profiles"]
    assert profile == {"name": "default", "is_default": True, "relay_state": "ready"}


async def test_security_and_what_is_injected(operator: httpx.AsyncClient, tmp_path: Path) -> None:
    expected = {"ok": True, "scope": "runtime", "allow_insecure_api_bearer": False, "trust_proxy_headers": False}
    assert (await operator.get("/relay/security")).json() == expected
    assert (await operator.get("/context/injected")).json() == {"enabled": False, "blocks": []}
    settings = settings_for(tmp_path / "proxied", TRUSTED_PROXIES="127.0.0.1/32")
    async with running(settings) as relay, client_of(relay, headers=relay.operator()) as behind:
        assert (await behind.get("/relay/security")).json()["trust_proxy_headers"] is True


async def test_a_good_bearer_is_needed_on_loopback_too(http: httpx.AsyncClient) -> None:
    for path in PATHS[:3]:
        answer = await http.get(path)
        assert (answer.status_code, answer.text) == (401, "Authorization: Bearer <session_token> required")
    answer = await http.get("/relay/info", headers={"Authorization": "Bearer nope"})
    assert (answer.status_code, answer.text) == (401, "invalid or expired session token")


async def test_a_device_and_a_tool_of_this_host_may_ask(
    http: httpx.AsyncClient, relay: RunningRelay, tmp_path: Path
) -> None:
    headers = {"Authorization": f"Bearer {(await relay.connect()).token}"}
    for path in PATHS:
        assert (await http.get(path, headers=headers)).status_code == 200, path
    async with running(settings_for(tmp_path / "trusting", TRUST_LOOPBACK="1")) as other, client_of(other) as tool:
        for path in PATHS:
            assert (await tool.get(path)).status_code == 200, path


async def test_what_is_not_there_is_not_found(operator: httpx.AsyncClient) -> None:
    """The app switches off what it gets 404 for."""
    for path in ("/relay/update-check", "/voice/config", "/chat/image-activity", "/api/profiles/default/config"):
        assert (await operator.get(path)).status_code == 404, path
    assert (await operator.post("/relay/model-capabilities", json={})).status_code == 404


async def test_the_probe_of_the_apps(http: httpx.AsyncClient) -> None:
    answer = await http.get("/health")
    assert answer.json()["status"] == "ok"
    assert answer.json()["version"]
    assert (await http.head("/health")).status_code == 200
