"""`/openapi.json` says what is so: examples have the shape of what the relay answers, and who may call may."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.openapi import Named, OrNull, plain, schema_of
from app.bridge.commands import COMMANDS
from tests.api.described import Described, unsaid
from tests.bridge.phone_simulator import PhoneSimulator, simulated
from tests.relay import RunningRelay, running, settings_for

ANYONE = {"/health", "/livez", "/readyz", "/identity", "/pairing/redeem", "/session/renew"}
REFUSALS = {"operator_required", "host_required", "session_required", "device_required", "grant_missing"}
STOP = ("POST", "/relay/stop")  # would end the tests; tests/server has it
SLOW = ("GET", "/doctor")
VALUES: dict[str, Any] = {"string": "a", "integer": 1, "boolean": True, "object": {}, "array": []}


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("hello")
    settings = settings_for(
        tmp_path / "data", BRIDGE_UNATTENDED="1", NTFY_URL="http://127.0.0.1:9", PUSH_ALLOW="127.0.0.1",
        MEDIA_ROOTS=str(tmp_path / "files"), MEDIA_MAX_MB="1",
    )  # fmt: skip
    async with running(settings) as relay:
        yield relay


@pytest.fixture
async def described(relay: RunningRelay) -> Described:
    async with httpx.AsyncClient() as http:
        return Described((await http.get(f"{relay.url}/openapi.json")).json())


@pytest.fixture
async def simulator(relay: RunningRelay) -> AsyncIterator[PhoneSimulator]:
    async with simulated(relay) as simulator:
        yield simulator


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_schema_is_made_of_an_example() -> None:
    example = {
        "name": "a", "count?": 1, "at": OrNull(0.5), "ends": Named({"chat": 0.5, "bridge": None}), "on": True,
        "list": [{"x": 1}], "any": None,
    }  # fmt: skip
    assert schema_of(example) == {
        "type": "object",
        "required": ["name", "at", "ends", "on", "list", "any"],
        "properties": {
            "name": {"type": "string"},
            "count": {"type": "integer"},
            "at": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "ends": {"type": "object", "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
            "on": {"type": "boolean"},
            "list": {
                "type": "array",
                "items": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            },
            "any": {},
        },
    }
    assert plain(example) == {
        "name": "a", "count": 1, "at": 0.5, "ends": {"chat": 0.5, "bridge": None}, "on": True, "list": [{"x": 1}],
        "any": None,
    }  # fmt: skip


def test_every_operation_is_described(described: Described) -> None:
    for (method, path), operation in described.operations():
        responses = operation["responses"]
        assert "default" in responses, path
        assert "422" not in responses, path
        assert bool(operation["security"]) != (path in ANYONE), path
        assert any(status.startswith("2") for status in responses), path
        if method in ("PATCH", "PUT") or (method == "POST" and "bridge" not in str(operation["security"])):
            assert "requestBody" in operation or path in ("/session/ticket", "/keys/rotate", "/relay/stop"), path


def test_every_example_fits_its_schema(described: Described) -> None:
    checked = 0
    for (_, path), operation in described.operations():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in [content for body in bodies for content in body.get("content", {}).values()]:
            if "example" in content:
                described.validate(content["schema"], content["example"])
                assert list(unsaid(content["schema"], content["example"])) == [], path
                checked += 1
    assert checked > 60
    error = described.document["components"]["schemas"]["Error"]
    described.validate(error, error["example"])


async def test_every_reference_leads_somewhere(described: Described) -> None:
    def references(value: object) -> set[str]:
        if isinstance(value, dict):
            here = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return here.union(*(references(one) for one in value.values()))
        return set().union(*(references(one) for one in value)) if isinstance(value, list) else set()

    found = references(described.document)
    assert {"#/components/schemas/Error", "#/components/schemas/PushKeys"} <= found
    for reference in found:
        assert reference.removeprefix("#/components/schemas/") in described.document["components"]["schemas"]


async def test_those_may_call_of_whom_it_is_said(
    relay: RunningRelay, described: Described, simulator: PhoneSimulator
) -> None:
    """Each operation, by each: with nothing in it, so that whoever is let in gets no further."""
    little = await relay.relay.pairing.mint(grants={"notifications": None})
    bare = await relay.connect(pairing_code=little.code)
    callers = {
        "operator": relay.operator(), "link": bearer(relay.relay.link.read()),
        "device": bearer(simulator.phone.token), "device without": bearer(bare.token), "nobody": {},
    }  # fmt: skip
    async with httpx.AsyncClient(base_url=relay.url, timeout=20, trust_env=False) as http:
        for (method, path), operation in described.operations():
            allowed = {name: grants for one in operation["security"] for name, grants in one.items()}
            for who, headers in callers.items():
                scheme = who.partition(" ")[0]
                may = path in ANYONE or (
                    scheme in allowed and (who != "device without" or set(allowed["device"]) <= {"notifications"})
                )
                if (method, path) == STOP and may:
                    continue
                answer = await http.request(method, path.replace("{", "-").replace("}", "-"), headers=headers)
                code = answer.headers.get("x-talaria-error")
                assert (code in REFUSALS) != may, (method, path, who, answer.status_code, code)


async def test_another_method_is_told_all_there_are(relay: RunningRelay) -> None:
    async with httpx.AsyncClient(base_url=relay.url) as http:
        answer = await http.options("/sessions/00000000")
        assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, PATCH")
        answer = await http.put("/livez")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_every_answer_is_as_described(
    relay: RunningRelay, described: Described, simulator: PhoneSimulator, tmp_path: Path
) -> None:
    phone = await relay.connect()
    await phone.send("notifications", "notification.posted", package_name="org.example.mail", title="Ada", key="k")
    await phone.ping()
    operator = described.client(relay.url, relay.operator())
    device = described.client(relay.url, bearer(phone.token))
    async with operator, device:
        await look_around(operator, device)
        await pair(operator)
        await sessions(operator, device)
        await messages(operator, phone.auth["device_id"])
        await push(operator, device, phone.auth["device_id"])
        await files(operator, device, tmp_path / "files" / "notes.txt")
        await phones(operator)
    promised = {
        (method, path, status)
        for (method, path), operation in described.operations()
        for status in operation["responses"]
        if status[0] == "2" and (method, path) not in (STOP, SLOW)
    }
    # A code that needs a word of the operator is in test_pairing.py, a range in test_media.py.
    elsewhere = {("POST", "/pairing/redeem", "202"), ("POST", "/pairing/confirm", "200")}
    assert {one for one in promised - described.seen if one[2] != "206"} == elsewhere


async def look_around(operator: httpx.AsyncClient, device: httpx.AsyncClient) -> None:
    for path in ("/health", "/livez", "/readyz", "/relay/info", "/relay/security", "/context/injected", "/metrics"):
        await good(operator.get(path))
    await good(operator.get("/identity", params={"challenge": "A" * 32}))
    assert (await good(operator.get("/notifications/recent"))).json()["count"] == 1
    await bad(operator.get("/identity"), 400)
    await bad(operator.get("/notifications/recent?limit=many"), 400)
    await bad(device.get("/metrics"), 401)


async def pair(operator: httpx.AsyncClient) -> None:
    asked = {"name": "Ada's phone", "grants": {"chat": 0}}
    await good(operator.post("/pairing/mint", json=asked))
    minted = (await good(operator.post("/pairing/mint", json={"for": "web"}))).json()
    await good(operator.get(f"/pairing/offers/{minted['offer_id']}"))
    await good(operator.post("/pairing/register", json={"code": "ABC234", "endpoints": [{"role": "lan"}]}))
    await good(operator.post("/pairing/approve", json={"code": "ABC235"}))
    await good(operator.get("/pairing/pending"))
    redeemed = (await good(operator.post("/pairing/redeem", json={"pairing_code": minted["code"]}))).json()
    await good(operator.post("/session/renew", json={"refresh_token": redeemed["refresh_token"]}))
    await bad(operator.post("/pairing/mint", json={"for": "nobody"}), 400)
    await bad(operator.post("/pairing/redeem", json={"pairing_code": "ZZZZZZZZ"}), 401)
    await bad(operator.post("/pairing/confirm", json={"confirm": "000000", "allow": True}), 404)


async def sessions(operator: httpx.AsyncClient, device: httpx.AsyncClient) -> None:
    await good(device.get("/session"))
    await good(device.post("/session/ticket"))
    await good(operator.post("/keys/rotate"))
    await good(operator.get("/devices"))
    listed = (await good(device.get("/sessions"))).json()["sessions"]
    other = next(one for one in listed if not one["is_current"] and one["client_surface"] != "android")
    path = f"/sessions/{other['token_prefix']}"
    await good(operator.patch(path, json={"ttl_seconds": 0, "grants": {"chat": 0}}))
    await good(operator.get("/sessions"))
    await good(operator.delete(path))
    await bad(operator.delete(path), 404)
    await bad(operator.patch(path, json={}), 400)


async def messages(operator: httpx.AsyncClient, device_id: str) -> None:
    sent = (await good(operator.post("/messages", json={"text": "hi", "title": "T", "device_id": device_id}))).json()
    await good(operator.get(f"/messages/{sent['message_id']}"))
    await good(operator.post("/phone/message", json={"text": "hi", "chat_id": "c"}))
    assert (await good(operator.get("/phone/outbound"))).json()["messages"]
    await good(operator.delete(f"/messages/{sent['message_id']}"))
    await good(operator.get(f"/messages/{sent['message_id']}"))
    await good(operator.delete("/phone/outbound"))
    await good(operator.get("/phone/threads"))
    await good(operator.get("/phone/replies"))
    await bad(operator.post("/messages", json={"text": 7}), 400)
    await bad(operator.post("/phone/message", json={}), 400)
    await bad(operator.get("/messages/none"), 404)


async def push(operator: httpx.AsyncClient, device: httpx.AsyncClient, device_id: str) -> None:
    target = (await good(device.post("/push/targets", json={"provider": "ntfy"}))).json()["target_id"]
    quiet = {"from": "22:00", "to": "07:00", "zone": "Europe/Berlin", "except": ["approval"]}
    await good(device.put("/push/preferences", json={"quiet": quiet}))
    tested = (await good(operator.post("/push/test", json={"device_id": device_id}))).json()
    assert [hop["ok"] for hop in tested["hops"]][:1] == [True]
    await good(operator.get(f"/push/test/{tested['message_id']}"))
    shown = (await good(device.get("/push"))).json()
    assert shown["outcomes"]
    assert shown["last_error"]
    await good(operator.get("/devices"))
    await good(device.delete(f"/push/targets/{target}"))
    await bad(device.post("/push/targets", json={"provider": "pigeon"}), 409)
    await bad(operator.get("/push"), 403)


async def files(operator: httpx.AsyncClient, device: httpx.AsyncClient, file: Path) -> None:
    uploaded = await good(device.post("/media/upload", files={"file": ("a.txt", b"hello")}))
    await good(device.get(f"/media/{uploaded.json()['token']}"))
    await good(operator.post("/media/register", json={"path": str(file), "content_type": "text/plain"}))
    await good(operator.get("/media/by-path", params={"path": str(file)}))
    await bad(operator.get("/media/by-path", params={"path": "/etc/passwd"}), 403)
    await bad(operator.get("/media/by-path"), 400)
    await bad(operator.get("/media/none"), 404)
    await bad(operator.post("/media/register", json={"path": "/etc/passwd", "content_type": "text/plain"}), 400)
    await bad(device.post("/media/upload", files={"file": ("a.txt", b"0" * (2 * 1024 * 1024))}), 413)


async def phones(operator: httpx.AsyncClient) -> None:
    for command in COMMANDS:
        args = {param.name: param.choices[0] if param.choices else VALUES[param.type] for param in command.params}
        if command.method == "GET":
            await operator.get(command.path, params={name: json.dumps(value) for name, value in args.items()})
        else:
            await operator.post(command.path, json={"package": "com.android.chrome", "nodeId": "w0:0"} | args)
    await good(operator.post("/open_app", json={"package": "com.android.chrome"}))
    await good(operator.post("/describe_node", json={"nodeId": "w0:0"}))
    await good(operator.post("/bridge/select-active", json={"device": "Pixel"}))
    await good(operator.get("/bridge/status"))
    await good(operator.get("/bridge/devices"))
    assert (await good(operator.get("/bridge/activity"))).json()["activity"]
    await bad(operator.get("/screen?device=none"), 404)
    await bad(operator.post("/bridge/select-active", json={}), 400)
    await bad(operator.post("/tap", content=b"["), 400)


async def good(asking: Any) -> httpx.Response:
    answer: httpx.Response = await asking
    assert answer.is_success, (answer.request.url, answer.status_code, answer.text)
    return answer


async def bad(asking: Any, status: int) -> None:
    answer: httpx.Response = await asking
    assert answer.status_code == status, (answer.request.url, answer.status_code, answer.text)
