"""Pairing hermes-relay's clients: `/pairing/mint` and its neighbours, compared with what that server answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.pairing.payload import LOOPBACK, lan_address
from tests.api.conftest import client_of
from tests.phone import OLDER
from tests.relay import RunningRelay, running, settings_for

PUBLIC = "https://home.tailnet.ts.net"


async def mint(operator: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await operator.post("/pairing/mint", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert json.loads(found["qr_payload"])["relay"]["code"] == found["code"]
    return found


async def test_what_is_minted_leads_to_the_public_origin(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PUBLIC_URL=PUBLIC)
    async with running(settings) as relay, client_of(relay, headers=relay.operator()) as operator:
        made = await mint(operator)
        assert list(made)[:9] == [
            "ok", "code", "qr_payload", "pairing_url", "host", "port", "tls", "relay_url", "expires_at",
        ]  # fmt: skip
        assert type(made["expires_at"]) is int
        payload = json.loads(made["qr_payload"])
        assert (made["host"], made["port"], made["tls"]) == ("home.tailnet.ts.net", 443, True)
        assert made["relay_url"] == payload["relay"]["url"] == "wss://home.tailnet.ts.net"
        assert (payload["hermes"], payload["host"], payload["port"], payload["tls"]) == (1, made["host"], 443, True)
        assert set(payload) == {"hermes", "host", "port", "key", "tls", "relay", "fp", "sig"}  # and no dashboard_url
        assert payload["fp"] == made["fingerprint"] == relay.relay.identity.fingerprint
        assert payload["key"].startswith("talaria-api-")
        assert set(payload["relay"]) == {"url", "code"}
        assert made["public"] is True
        listed = json.loads((await mint(operator, grants=["chat", "bridge"], ttl_seconds=86400.0))["qr_payload"])
        assert listed["hermes"] == 2
        assert listed["relay"]["ttl_seconds"] == 86400
        assert listed["relay"]["grants"] == {"chat": 0, "bridge": 604800}


async def test_endpoints_given_as_urls_come_before_the_public_origin(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PUBLIC_URL=PUBLIC)
    async with running(settings) as relay, client_of(relay, headers=relay.operator()) as operator:
        payload = json.loads((await mint(operator, endpoints=["http://192.168.1.5:8767"]))["qr_payload"])
        assert payload["hermes"] == 3
        assert [(one["role"], one["priority"], one["relay"]["url"]) for one in payload["endpoints"]] == [
            ("lan", 0, "ws://192.168.1.5:8767"), ("tailscale", 1, "wss://home.tailnet.ts.net"),
        ]  # fmt: skip
        refused = await operator.post("/pairing/mint", json={"endpoints": ["nonsense"]})
        assert refused.status_code == 400
        assert "https://name" in refused.json()["error"]


async def test_what_was_recorded_of_minting(operator: httpx.AsyncClient) -> None:
    asked = {
        "host": "192.168.1.100", "port": 8642, "tls": False, "api_key": "KEY", "ttl_seconds": 604800,
        "grants": {"terminal": 3600}, "transport_hint": "ws",
    }  # fmt: skip
    made = await mint(operator, **asked)
    assert (made["host"], made["port"], made["tls"]) == ("192.168.1.100", 8642, False)
    payload = json.loads(made["qr_payload"])
    del payload["sig"], payload["fp"], payload["relay"]["url"], payload["relay"]["code"]
    assert payload == {
        "hermes": 2, "host": "192.168.1.100", "port": 8642, "key": "KEY", "tls": False,
        "relay": {"ttl_seconds": 604800, "grants": {"terminal": 3600}, "transport_hint": "ws"},
    }  # fmt: skip
    endpoints = [{"role": "lan", "priority": 0, "api": {"host": "192.168.1.100", "port": 8642, "tls": False}}]
    asked = {"host": "192.168.1.100", "dashboard_url": "http://192.168.1.100:9119/", "endpoints": endpoints}
    made = await mint(operator, **asked)
    assert (made["endpoints"], made["dashboard_url"]) == (endpoints, "http://192.168.1.100:9119")
    payload = json.loads(made["qr_payload"])
    assert payload["hermes"] == 3
    assert payload["endpoints"] == endpoints
    assert payload["dashboard_url"] == "http://192.168.1.100:9119"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"port": "x"}, "'port' must be an integer"),
        ({"port": True}, "'port' must be an integer"),
        ({"port": 0}, "'port' must be between 1 and 65535"),
        ({"host": "0.0.0.0"}, "missing 'host' — API server address could not be resolved"),
        ({"host": 7}, "'host' must be a text"),
        ({"tls": "yes"}, "'tls' must be true or false"),
        ({"endpoints": {}}, "endpoints must be an array"),
        ({"endpoints": [{}] * 17}, "endpoints may be at most 16"),
        ({"grants": {"chat": -1}}, "grants['chat'] must be >= 0"),
        ({"grants": []}, "grants must be names, at least one"),
        ({"for": "fax"}, "'for' must be web or hermes-relay"),
    ],
)
async def test_what_cannot_be_minted(operator: httpx.AsyncClient, body: dict[str, Any], error: str) -> None:
    answer = await operator.post("/pairing/mint", json=body)
    assert (answer.status_code, answer.json()) == (400, {"ok": False, "error": error})


async def test_grants_of_hermes_relay_that_are_not_here_are_passed_over(operator: httpx.AsyncClient) -> None:
    made = await mint(operator, grants={"voice:stt": 60, "terminal": 60.0})
    assert json.loads(made["qr_payload"])["relay"]["grants"] == {"terminal": 60}


@pytest.mark.skipif(lan_address() is None, reason="this machine has no address in a network")
async def test_loopback_is_no_address_for_a_phone(operator: httpx.AsyncClient) -> None:
    for host in LOOPBACK:
        assert (await mint(operator, host=host))["host"] == lan_address()


async def test_the_app_pairs_and_its_api_token_stands_for_its_session(
    operator: httpx.AsyncClient, relay: RunningRelay
) -> None:
    made = await mint(operator)
    key = json.loads(made["qr_payload"])["key"]
    phone = await relay.connect("/", pairing_code=made["code"].lower(), supports=OLDER, device_id="mint-dev")
    assert phone.auth["refresh_token"].isprintable()
    found = await relay.relay.sessions.by_api_token(key)
    assert found.device_id == "mint-dev"
    refused = await operator.get("/sessions", headers={"Authorization": f"Bearer {key}"})
    assert refused.status_code == 403
    assert refused.headers["x-talaria-error"] == "api_token_misplaced"
    without = json.loads((await mint(operator, api_token=False))["qr_payload"])
    assert without["key"] == ""


async def test_approve_answers_as_recorded(operator: httpx.AsyncClient, relay: RunningRelay) -> None:
    answer = await operator.post("/pairing/approve", json={"code": "ZZZ999", "ttl_seconds": 60})
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "code": "ZZZ999"})
    phone = await relay.connect(pairing_code="ZZZ999")
    assert phone.auth["expires_at"] is not None
    for body in ({}, {"code": "ABC12"}):
        assert (await operator.post("/pairing/approve", json=body)).status_code == 400


async def test_with_confirmation_the_operator_approves_what_the_app_will_scan(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PAIRING_CONFIRM="1", TRUST_LOOPBACK="1")
    async with (
        running(settings) as relay,
        client_of(relay) as tool,
        client_of(relay, headers=relay.operator()) as operator,
    ):
        made = await mint(tool)
        assert made["needs_approval"] is True
        key = json.loads(made["qr_payload"])["key"]
        refused = await tool.post("/pairing/redeem", json={"pairing_code": made["code"]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "pairing_code_rejected")
        # A tool of this host may mint; what it minted is not for it to approve.
        answer = await tool.post("/pairing/approve", json={"code": made["code"]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "operator_required")
        assert (await operator.post("/pairing/approve", json={"code": made["code"]})).json()["ok"] is True
        assert (await tool.post("/pairing/redeem", json={"pairing_code": made["code"]})).status_code == 200
        await relay.relay.sessions.by_api_token(key)


async def test_redeeming_without_a_socket_asks_the_operator(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PAIRING_CONFIRM="1")
    async with (
        running(settings) as relay,
        client_of(relay) as phone,
        client_of(relay, headers=relay.operator()) as operator,
    ):
        made = (await operator.post("/pairing/mint", json={"for": "web"})).json()
        body = {"pairing_code": made["code"], "device_id": "dev-1", "device_name": "Pixel"}
        answer = await phone.post("/pairing/redeem", json=body)
        assert answer.status_code == 202
        asked = answer.json()
        assert set(asked) == {"confirm", "expires_at"}
        assert type(asked["expires_at"]) is int
        (waiting,) = (await operator.get("/pairing/pending")).json()["pending"]
        assert waiting == {
            "confirm": asked["confirm"], "offer_id": made["offer_id"], "offer_name": None,
            "device": {"name": "Pixel", "address": "127.0.0.1"}, "expires_at": asked["expires_at"],
        }  # fmt: skip
        status = (await operator.get(f"/pairing/offers/{made['offer_id']}")).json()
        assert (status["state"], status["confirm"]) == ("confirming", asked["confirm"])
        for bad in ({}, {"confirm": 1, "allow": True}, {"confirm": asked["confirm"], "allow": "yes"}):
            assert (await operator.post("/pairing/confirm", json=bad)).status_code == 400
        unknown = await operator.post("/pairing/confirm", json={"confirm": "x", "allow": True})
        assert unknown.json()["error"]["code"] == "confirmation_unknown"
        said = await operator.post("/pairing/confirm", json={"confirm": asked["confirm"], "allow": True})
        assert said.json() == {"ok": True, "allowed": True, "offer_id": made["offer_id"]}
        paired = await phone.post("/pairing/redeem", json=body)
        assert paired.status_code == 200
        assert {"session_token", "refresh_token"} <= set(paired.json())
        for method, path in (("GET", "/pairing/pending"), ("POST", "/pairing/confirm")):
            headers = {"Authorization": f"Bearer {paired.json()['session_token']}"}
            assert (await phone.request(method, path, json={}, headers=headers)).status_code == 401
