from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.api.conftest import client_of
from tests.phone import Phone
from tests.relay import RunningRelay

ABOUT = {
    "device_name": "Pixel Test", "device_model": "Pixel 9", "device_platform": "Android 16",
    "client_surface": "android", "device_form_factor": "phone",
}  # fmt: skip
EXTEND = "operator approval required to extend session"


def bearer(phone: Phone) -> dict[str, str]:
    return {"Authorization": f"Bearer {phone.token}"}


async def prefix_of(relay: RunningRelay, phone: Phone) -> str:
    return (await relay.relay.sessions.verify(phone.token)).prefix


@pytest.fixture
async def phone(relay: RunningRelay) -> Phone:
    return await relay.connect(device_id="dev-1", **ABOUT)


@pytest.fixture
async def mine(relay: RunningRelay, phone: Phone) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(relay, headers=bearer(phone)) as http:
        yield http


async def test_the_list_is_hermes_relays(mine: httpx.AsyncClient, relay: RunningRelay, phone: Phone) -> None:
    other = await relay.connect(device_id="dev-2")
    sessions = {entry["device_id"]: entry for entry in (await mine.get("/sessions")).json()["sessions"]}
    assert set(sessions) == {"dev-1", "dev-2"}
    entry = sessions["dev-1"]
    assert set(entry) == {
        "token_prefix", "device_name", "device_id", "created_at", "first_seen", "last_seen", "expires_at", "grants",
        "transport_hint", "client_surface", "device_form_factor", "device_model", "device_platform", "is_current",
    }  # fmt: skip
    assert {name: entry[name] for name in ABOUT} == ABOUT
    assert entry["token_prefix"] == await prefix_of(relay, phone)
    assert entry["grants"] == phone.auth["grants"]
    assert (entry["is_current"], sessions["dev-2"]["is_current"]) == (True, False)
    assert sessions["dev-2"]["client_surface"] == "unknown"
    listed = (await mine.get("/sessions")).text
    assert phone.token not in listed
    assert other.token not in listed


async def test_without_a_session_it_is_a_line_of_text(http: httpx.AsyncClient) -> None:
    required, invalid = "Authorization: Bearer <session_token> required", "invalid or expired session token"
    for method, path in (("GET", ""), ("PATCH", "/ffffffff"), ("DELETE", "/ffffffff")):
        for authorization, body in (
            (None, required),
            ("Basic x", required),
            ("Bearer", required),
            ("Bearer x", invalid),
        ):
            headers = {} if authorization is None else {"Authorization": authorization}
            answer = await http.request(method, f"/sessions{path}", headers=headers)
            assert (answer.status_code, answer.text) == (401, body)
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            assert answer.headers["x-talaria-error"] in ("session_required", "session_unknown")


async def test_who_am_i(
    mine: httpx.AsyncClient, http: httpx.AsyncClient, operator: httpx.AsyncClient, phone: Phone
) -> None:
    me = (await mine.get("/session")).json()
    assert (me["device_id"], me["is_current"], me["grants"]) == ("dev-1", True, phone.auth["grants"])
    for caller, status, code in ((http, 401, "session_required"), (operator, 403, "device_required")):
        answer = await caller.get("/session")
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_less_for_itself(mine: httpx.AsyncClient, relay: RunningRelay, phone: Phone) -> None:
    url = f"/sessions/{await prefix_of(relay, phone)}"
    answer = (await mine.patch(url, json={"ttl_seconds": 600})).json()
    assert set(answer) == {"ok", "token_prefix", "expires_at", "grants"}
    assert abs(answer["expires_at"] - time.time() - 600) < 30
    assert set(answer["grants"].values()) == {answer["expires_at"]}
    for more in (999999, 0):
        refused = await mine.patch(url, json={"ttl_seconds": more})
        assert (refused.status_code, refused.text) == (403, EXTEND)
        assert refused.headers["x-talaria-error"] == "more_than_granted"
    less = (await mine.patch(url, json={"grants": {"terminal": 60}})).json()["grants"]
    assert abs(less["terminal"] - time.time() - 60) < 30
    assert less | {"terminal": 0} == answer["grants"] | {"terminal": 0}
    # the whole map in a lagging clock's seconds, 0 where it never ends, 1 for the one to take back
    whole = dict.fromkeys(less, 3600) | {"chat": 0, "notifications": 1}
    same = (await mine.patch(url, json={"grants": whole})).json()["grants"]
    gone = same.pop("notifications")
    assert gone < time.time() + 2
    assert same == {name: end for name, end in less.items() if name != "notifications"}


async def test_a_change_that_is_none(mine: httpx.AsyncClient, relay: RunningRelay, phone: Phone) -> None:
    url = f"/sessions/{await prefix_of(relay, phone)}"
    for body, error in NO_CHANGES:
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = await mine.patch(url, **sent)
        assert (answer.status_code, answer.json()) == (400, {"ok": False, "error": error}), body


NO_GRANTS: list[Any] = [{"chat": "x"}, {"chat": -1}, {"chat": None}, {"chat": True}, [], "chat", {"chat": 1e300}]
NO_CHANGES: list[tuple[Any, str]] = [
    ({"grants": {"nope": 60}}, "unknown grant 'nope'"),
    ({}, "must provide at least one of 'ttl_seconds' or 'grants'"),
    ({"name": "mine"}, "must provide at least one of 'ttl_seconds' or 'grants'"),
    ({"ttl_seconds": "x"}, "'ttl_seconds' must be a non-negative integer (0 = never expire)"),
    ({"ttl_seconds": True}, "'ttl_seconds' must be a non-negative integer (0 = never expire)"),
    ({"ttl_seconds": -1}, "'ttl_seconds' must be a non-negative integer (0 = never expire)"),
    ({"ttl_seconds": 1.5}, "'ttl_seconds' must be a non-negative integer (0 = never expire)"),
    *(
        ({"grants": bad}, "'grants' must map string channel names to non-negative numeric seconds-from-now values")
        for bad in NO_GRANTS
    ),
    (b'{"grants": {"chat": NaN}}', "invalid JSON body"),
    (b"[1]", "body must be a JSON object"),
    (b"{", "invalid JSON body"),
]


async def test_a_prefix_that_names_another_or_none_or_two(mine: httpx.AsyncClient, relay: RunningRelay) -> None:
    other = await relay.connect(device_id="dev-2")
    answer = await mine.patch(f"/sessions/{await prefix_of(relay, other)}", json={"ttl_seconds": 60})
    assert (answer.status_code, answer.text) == (403, "cannot modify another session")
    for method in ("PATCH", "DELETE"):
        answer = await mine.request(method, "/sessions/ffffffffff", json={"ttl_seconds": 60})
        assert (answer.status_code, answer.text) == (404, "no session matches prefix 'ffffffffff'")
    for n in range(16):  # of seventeen hexadecimal beginnings two are alike
        await relay.relay.pairing.redeem(await _auth(relay, f"more-{n}"))
    heads = [entry["token_prefix"][0] for entry in (await mine.get("/sessions")).json()["sessions"]]
    twice = next(head for head in heads if heads.count(head) > 1)
    answer = await mine.delete(f"/sessions/{twice}")
    assert (answer.status_code, answer.headers["x-talaria-error"]) == (409, "session_prefix_ambiguous")


async def _auth(relay: RunningRelay, device_id: str) -> Any:
    from app.wire.payloads import Auth

    return Auth(pairing_code=(await relay.relay.pairing.mint()).code, device_id=device_id)


async def test_revoking_closes_the_sockets_before_any_recheck(
    mine: httpx.AsyncClient, relay: RunningRelay, phone: Phone
) -> None:
    lost = await relay.connect(device_id="dev-2")
    second = await relay.connect(session_token=lost.token)
    prefix = await prefix_of(relay, lost)
    answer = await mine.delete(f"/sessions/{prefix}")
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "revoked": prefix, "revoked_self": False})
    for socket in (lost, second):
        assert await socket.closed() == (4401, "revoked")  # that is waited for less long than a recheck takes to come
    await phone.ping()
    refused = await mine.get("/sessions", headers=bearer(lost))
    assert (refused.status_code, refused.text) == (401, "invalid or expired session token")
    assert refused.headers["x-talaria-error"] == "session_revoked"
    itself = await mine.delete(f"/sessions/{await prefix_of(relay, phone)}")
    assert itself.json()["revoked_self"] is True
    assert await phone.closed() == (4401, "revoked")


async def test_the_operator_lists_names_extends_and_revokes(
    operator: httpx.AsyncClient, relay: RunningRelay, phone: Phone
) -> None:
    url = f"/sessions/{await prefix_of(relay, phone)}"
    body = {"name": " Kitchen ", "ttl_seconds": 0, "grants": {"dashboard": 3600, "bridge": 0}}
    answer = (await operator.patch(url, json=body)).json()
    assert answer["expires_at"] is None
    assert answer["grants"]["bridge"] is None
    assert abs(answer["grants"]["dashboard"] - time.time() - 3600) < 30
    assert (await operator.patch(url, json={"name": ""})).status_code == 400
    (device,) = (await operator.get("/devices")).json()["devices"]
    assert (device["device_id"], device["name"], device["online"]) == ("dev-1", "Kitchen", True)
    assert device["about"]["model"] == "Pixel 9"
    assert [session["grants"] for session in device["sessions"]] == [answer["grants"]]
    assert not any(entry["is_current"] for entry in (await operator.get("/sessions")).json()["sessions"])
    assert (await operator.delete(url)).json()["revoked_self"] is False
    assert await phone.closed() == (4401, "revoked")
    (device,) = (await operator.get("/devices")).json()["devices"]
    assert (device["online"], device["sessions"]) == (False, [])


async def test_devices_are_for_the_operator(mine: httpx.AsyncClient) -> None:
    answer = await mine.get("/devices")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "operator_required")


async def test_a_session_that_ends_while_it_is_admitted_gets_no_socket(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the verdict and the joining of the hub nobody would close it."""
    token = (await relay.connect()).token
    position = relay.relay.authenticator._position

    async def revoked_meanwhile(device_id: str, auth: Any) -> Any:
        found = await position(device_id, auth)
        principal = await relay.relay.sessions.verify(token)
        await relay.relay.sessions.revoke(principal.session_id, actor="operator")
        return found

    monkeypatch.setattr(relay.relay.authenticator, "_position", revoked_meanwhile)
    phone = await relay.open()
    await phone.send("system", "auth", {"session_token": token})
    assert (await phone.closed())[0] == 4401
