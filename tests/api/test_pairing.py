from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx

from app.clock import ManualClock
from tests.api.conftest import PROXY, client_of
from tests.phone import OURS
from tests.relay import RunningRelay, running, settings_for

DAY = 86400


def from_(address: str) -> dict[str, str]:
    return {"X-Forwarded-For": address}


async def test_mint_then_redeem_then_speak(
    operator: httpx.AsyncClient, http: httpx.AsyncClient, relay: RunningRelay
) -> None:
    minted = (await operator.post("/pairing/mint", json={"name": "Pixel", "for": "web"})).json()
    assert minted.pop("ok") is True
    assert type(minted["expires_at"]) is int
    assert abs(minted.pop("expires_at") - time.time() - 600) < 30
    code, offer_id = minted.pop("code"), minted.pop("offer_id")
    own = relay.relay.identity.fingerprint
    assert minted == {
        "web_url": f"{relay.url}/pair#code={code}&fp={own}", "fingerprint": own, "public": False,
            "name": "Pixel", "ttl_seconds": 30 * DAY,
        "grants": {
            "chat": None, "terminal": None, "bridge": 7 * DAY, "notifications": None,
        },
    }  # fmt: skip
    redeemed = await http.post("/pairing/redeem", json={"pairing_code": code, "supports": OURS, "device_id": "dev-1"})
    assert redeemed.status_code == 200
    assert redeemed.headers["cache-control"] == "no-store"
    ok = redeemed.json()
    assert {"session_token", "expires_at", "grants", "device_id", "relay_id", "epoch", "head", "limits"} <= set(ok)
    phone = await relay.connect(session_token=ok["session_token"])
    assert phone.auth["device_id"] == "dev-1"
    status = (await operator.get(f"/pairing/offers/{offer_id}")).json()
    assert (status["state"], status["device_id"], status["device_name"]) == ("redeemed", "dev-1", "Pixel")


async def test_the_link_has_the_public_url(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, PUBLIC_URL="https://home.tailnet.ts.net/")
    async with running(settings) as relay, client_of(relay, headers=relay.operator()) as operator:
        minted = (await operator.post("/pairing/mint", json={"for": "web"})).json()
        own = relay.relay.identity.fingerprint
        assert minted["web_url"] == f"https://home.tailnet.ts.net/pair#code={minted['code']}&fp={own}"
    assert minted["public"] is True


async def test_what_a_phone_gets_is_said_in_the_offer(operator: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    async def minted(**body: Any) -> dict[str, Any]:
        answer = await operator.post("/pairing/mint", json={"for": "web"} | body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    exactly = await minted(grants=["chat", "bridge", "dashboard"], ttl_seconds=0)
    assert (exactly["grants"], exactly["ttl_seconds"]) == (
        {"chat": None, "bridge": 7 * DAY, "dashboard": None}, None,
    )  # fmt: skip
    changed = await minted(grants={"terminal": 3600, "chat": 0, "dashboard": 60.0}, ttl_seconds=DAY, **{"for": "web"})
    assert changed["grants"] | {"terminal": 3600, "chat": None, "dashboard": 60} == changed["grants"]
    assert len(changed["grants"]) == 5
    asked = {"pairing_code": changed["code"], "ttl_seconds": 99 * DAY, "grants": {"terminal": 0}}
    ok = (await http.post("/pairing/redeem", json=asked)).json()
    now = time.time()
    assert abs(ok["expires_at"] - now - DAY) < 30
    assert abs(ok["grants"]["terminal"] - now - 3600) < 30
    assert ok["grants"]["bridge"] == ok["expires_at"]  # seven days do not outlive one


async def test_an_offer_nobody_can_make(operator: httpx.AsyncClient) -> None:
    for body, error, code in NO_OFFERS:
        answer = await operator.post("/pairing/mint", json={"for": "web"} | body)
        assert answer.status_code == 400, body
        assert answer.json()["ok"] is False
        assert error in answer.json()["error"]
        assert answer.headers["x-talaria-error"] == code


NO_OFFERS: list[tuple[Any, str, str]] = [
    ({"for": "fax"}, "'for' must be web or hermes-relay", "payload_invalid"),
    ({"grants": {"everything": 1}}, "unknown grant 'everything'", "grant_unknown"),
    ({"grants": ["chat", "everything"]}, "unknown grant 'everything'", "grant_unknown"),
    ({"grants": []}, "grants must be names, at least one", "payload_invalid"),
    ({"grants": [1]}, "grants must be names", "payload_invalid"),
    ({"grants": "chat"}, "grants must be an object", "payload_invalid"),
    ({"ttl_seconds": -1}, "ttl_seconds must be >= 0 (0 = never)", "payload_invalid"),
    ({"ttl_seconds": 10**12}, "ttl_seconds must be <=", "payload_invalid"),
    ({"ttl_seconds": {}}, "ttl_seconds must be a number", "payload_invalid"),
    ({"name": 7}, "name must be a text", "payload_invalid"),
    ({"name": "x" * 121}, "name must be a text", "payload_invalid"),
    ({"transport_hint": ["wss"]}, "transport_hint must be wss/ws/unknown", "payload_invalid"),
]


RECORDED: list[tuple[Any, int, Any]] = [
    ({"code": "abc123"}, 200, {"ok": True, "code": "ABC123"}),
    ({"code": "ABC12"}, 400, "invalid code format (must be 6 chars from A-Z / 0-9)"),
    ({"code": "ABC12!"}, 400, "invalid code format (must be 6 chars from A-Z / 0-9)"),
    ({}, 400, "missing 'code' field"),
    ({"code": "ABC123", "ttl_seconds": -1}, 400, "ttl_seconds must be >= 0 (0 = never)"),
    ({"code": "ABC123", "ttl_seconds": True}, 400, "ttl_seconds must be a number"),
    ({"code": "ABC123", "ttl_seconds": "x"}, 400, "ttl_seconds must be a number"),
    ({"code": "ABC123", "grants": []}, 400, "grants must be an object"),
    ({"code": "ABC123", "grants": {"chat": -1}}, 400, "grants['chat'] must be >= 0"),
    ({"code": "ABC123", "transport_hint": "tcp"}, 400, "transport_hint must be wss/ws/unknown"),
    ({"code": "ABC123", "endpoints": {}}, 400, "endpoints must be an array"),
    (b'{"code": "ABC123", "endpoints": ' + b"[" * 900 + b"]" * 900 + b"}", 400, "endpoints: it may be nested 32 deep"),
    (
        {"code": "ABC123", "endpoints": [{"role": "lan"}]}, 200,
        {"ok": True, "code": "ABC123", "endpoints": [{"role": "lan"}]},
    ),
    (
        {"code": "ABC123", "ttl_seconds": 0, "grants": {"chat": 0, "terminal": 60}, "transport_hint": "wss"}, 200,
        {"ok": True, "code": "ABC123"},
    ),
    ({"code": "ABC123", "grants": {"voice:stt": 5}}, 200, {"ok": True, "code": "ABC123"}),
    ([1], 400, "body must be a JSON object"),
    (b"{bad", 400, "invalid JSON body"),
    (b'{"code": "ABC123", "ttl_seconds": NaN}', 400, "invalid JSON body"),
    (b'{"code": "ABC123", "ttl_seconds": 1e999}', 400, "invalid JSON body"),
    (b"", 400, "invalid JSON body"),
]  # fmt: skip


async def test_register_answers_as_hermes_relay_does(operator: httpx.AsyncClient) -> None:
    for body, status, expected in RECORDED:
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = await operator.post("/pairing/register", **sent)
        assert answer.status_code == status, body
        assert answer.json() == (expected if status == 200 else {"ok": False, "error": expected})
        assert ("x-talaria-error" in answer.headers) == (status == 400)


async def test_a_registered_code_pairs_within_what_was_registered(
    operator: httpx.AsyncClient, relay: RunningRelay
) -> None:
    body = {"code": "CF0GKF", "ttl_seconds": 120, "grants": {"terminal": 999999, "custom": 5}, "transport_hint": "wss"}
    assert (await operator.post("/pairing/register", json=body)).json() == {"ok": True, "code": "CF0GKF"}
    phone = await relay.connect(pairing_code="cf0-gkf")
    assert len(set(phone.auth["grants"].values()) | {phone.auth["expires_at"]}) == 1
    assert "custom" not in phone.auth["grants"]


async def test_only_the_operator_makes_offers(http: httpx.AsyncClient, relay: RunningRelay) -> None:
    token = (await relay.connect()).token
    for headers in (
        {},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": f"Bearer {token}"},
        {"Authorization": "Basic x"},
    ):
        for method, path in (("POST", "/pairing/mint"), ("POST", "/pairing/register"), ("GET", "/pairing/offers/x")):
            answer = await http.request(method, path, json={"code": "ABC123"}, headers=headers)
            assert answer.status_code == 401
            error = answer.json()["error"]
            assert error["request_id"] == answer.headers["x-request-id"]
            assert (error["code"], error["layer"], error["retryable"]) == ("operator_required", "relay", False)


async def test_a_redeem_that_is_refused(http: httpx.AsyncClient) -> None:
    for body, status, code in NO_CODES:
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = await http.post("/pairing/redeem", **sent)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), body
        assert answer.headers["x-talaria-error"] == code


NO_CODES: list[tuple[Any, int, str]] = [
    ({"pairing_code": "WRONG000"}, 401, "pairing_code_rejected"),
    ({"pairing_code": "no code at all"}, 401, "pairing_code_rejected"),
    ({}, 401, "pairing_code_rejected"),
    ({"session_token": "x"}, 401, "pairing_code_rejected"),
    ({"pairing_code": 123456}, 400, "payload_invalid"),
    ({"pairing_code": "A" * 65}, 400, "payload_invalid"),
    ({"pairing_code": "WRONG000", "device_id": "\x00"}, 400, "payload_invalid"),
    ({"pairing_code": "WRONG000", "supports": []}, 400, "payload_invalid"),
    ([], 400, "payload_invalid"),
    (b"{", 400, "payload_invalid"),
    (b'{"pairing_code": "' + b"A" * 70_000 + b'"}', 413, "body_too_large"),
]


async def test_ten_wrong_codes_over_http_close_the_door_for_that_address_alone(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path, **PROXY), clock=clock) as relay, client_of(relay) as http:
        for n in range(10):
            wrong = {"pairing_code": f"WRONG{n:03}"}
            answer = await http.post("/pairing/redeem", json=wrong, headers=from_("203.0.113.7"))
            assert answer.status_code == 401
        offer = await relay.relay.pairing.register("GOOD0000")  # lifts, so guess again
        for n in range(10):
            await http.post("/pairing/redeem", json={"pairing_code": f"WRONG{n:03}"}, headers=from_("203.0.113.7"))
        answer = await http.post("/pairing/redeem", json={"pairing_code": offer.code}, headers=from_("203.0.113.7"))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "120")
        assert answer.json()["error"]["retryable"] is True
        answer = await http.post("/pairing/redeem", json={"pairing_code": offer.code}, headers=from_("203.0.113.8"))
        assert answer.status_code == 200


async def test_waiting_for_a_phone_ends_when_it_arrives(operator: httpx.AsyncClient, relay: RunningRelay) -> None:
    minted = (await operator.post("/pairing/mint", json={})).json()
    url = f"/pairing/offers/{minted['offer_id']}"
    assert (await operator.get(url)).json()["state"] == "waiting"
    async with asyncio.timeout(15), asyncio.TaskGroup() as group:
        waiting = group.create_task(operator.get(url, params={"wait": 30}))
        phone = await relay.connect(pairing_code=minted["code"], device_name="Pixel")
    assert waiting.result().json() == {
        "state": "redeemed", "expires_at": minted["expires_at"],
        "device_id": phone.auth["device_id"], "device_name": "Pixel", "confirm": None,
    }  # fmt: skip
    assert (await operator.get("/pairing/offers/nosuch")).json()["error"]["code"] == "not_found"
    assert (await operator.get(url, params={"wait": 31})).json()["error"]["code"] == "payload_invalid"


async def test_twenty_redeem_one_code_at_once(operator: httpx.AsyncClient, http: httpx.AsyncClient) -> None:
    code = (await operator.post("/pairing/mint", json={})).json()["code"]
    answers = await asyncio.gather(*(http.post("/pairing/redeem", json={"pairing_code": code}) for _ in range(20)))
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) == 1
    assert set(statuses) == {200, 401, 429}  # ten wrong ones, then no more


async def test_pairing_again_closes_the_devices_older_sockets(relay: RunningRelay) -> None:
    old = await relay.connect(device_id="dev-1")
    other = await relay.connect(device_id="dev-2")
    await relay.connect(device_id="dev-1")
    assert await old.closed() == (4401, "replaced")
    await other.ping()
