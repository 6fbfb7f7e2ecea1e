"""Which phone gets a command, which answer counts, and what is said when there is none."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from app.bridge.commands import BY_NAME
from app.delivery.calls import MAX_OF_DEVICE
from app.delivery.errors import DeviceOffline
from app.errors import Overloaded
from app.sessions.changes import Change
from app.wire.link import MAX_MESSAGE
from tests.bridge.conftest import Simulate
from tests.bridge.phone_simulator import PhoneSimulator
from tests.relay import RunningRelay

TAP = BY_NAME["tap"]


def code(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.headers.get("x-talaria-error")


async def asked(http: httpx.AsyncClient, phone: PhoneSimulator, path: str = "/tap", **options: Any) -> Any:
    """A request under way, once the phone has the command. Returns (task, command)."""
    phone.silent, phone.taken = True, len(phone.heard)
    asking = asyncio.ensure_future(http.post(path, json={"x": 1, "device": phone.device_id}, **options))
    return asking, await phone.command()


# which phone


async def test_a_phone_is_named_by_its_id_its_name_or_a_word_of_it(http: httpx.AsyncClient, simulate: Simulate) -> None:
    fold, boox = await simulate(device_name="Pixel Fold"), await simulate(device_name="Boox Note")
    for name in (fold.device_id, "Pixel Fold", "pixelfold", "PIXEL", "fold"):
        assert (await http.post("/tap", json={"deviceId": name})).status_code == 200
    assert (await http.get("/screen", params={"device": "boox"})).status_code == 200
    assert (len(fold.heard), len(boox.heard)) == (5, 1)
    assert all("device" not in str(heard["body"]) for heard in fold.heard)


async def test_nothing_is_done_on_a_phone_that_nobody_named(http: httpx.AsyncClient, simulate: Simulate) -> None:
    fold, boox = await simulate(device_name="Pixel Fold"), await simulate(device_name="Boox Note")
    assert code(await http.post("/tap", json={})) == (409, "ambiguous_device")
    answer = await http.post("/tap", json={"device": "phone"})
    assert (answer.status_code, answer.json()) == (409, {"error": "Ambiguous bridge device selector: phone"})
    answer = await http.post("/tap", json={"device": "nosuch"})
    assert (answer.status_code, answer.json()) == (404, {"error": "Unknown bridge device selector: nosuch"})
    assert code(answer) == (404, "device_unknown")
    assert fold.heard == boox.heard == []


async def test_one_phone_can_be_chosen(http: httpx.AsyncClient, simulate: Simulate) -> None:
    fold, boox = await simulate(device_name="Pixel Fold"), await simulate(device_name="Boox Note")
    answer = await http.post("/bridge/select-active", json={"device": "boox"})
    assert answer.json() == {
        "ok": True, "active_device_id": boox.device_id, "device_id": boox.device_id, "device_name": "Boox Note",
        "alias_used": "boox", "aliases": answer.json()["aliases"],
    }  # fmt: skip
    assert (await http.post("/tap", json={})).status_code == 200
    assert (len(fold.heard), len(boox.heard)) == (0, 1)
    found = (await http.get("/bridge/devices")).json()
    assert (found["active_device_id"], found["most_recent_device_id"]) == (boox.device_id, boox.device_id)
    assert [(one["device_name"], one["active"]) for one in found["devices"]] == [
        ("Boox Note", True), ("Pixel Fold", False),
    ]  # fmt: skip
    answer = await http.post("/bridge/select-active", json={})
    assert (answer.status_code, answer.json()) == (400, {"ok": False, "error": "missing device or device_id"})
    answer = await http.post("/bridge/select-active", json={"device": "phone"})
    assert (answer.status_code, answer.json()) == (409, {"error": "Ambiguous bridge device selector: phone"})


async def test_of_several_sockets_of_a_phone_the_one_that_spoke_last_gets_it(
    http: httpx.AsyncClient, simulate: Simulate
) -> None:
    first = await simulate()
    second = await simulate(session_token=first.phone.token)
    await http.post("/tap", json={})
    assert (len(first.heard), len(second.heard)) == (0, 1)
    await second.phone.hang_up()
    while (await http.get("/ping")).status_code == 502:  # until the relay has noticed
        pass
    await http.post("/tap", json={})
    assert first.heard[-1]["path"] == "/tap"


async def test_what_is_known_of_a_phone(http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate) -> None:
    phone = await simulate(device_name="Pixel Test")
    found = (await http.get("/bridge/status")).json()
    assert found["device"] | {"device_id": phone.device_id} == found["device"]
    assert found | {
        "device_id": phone.device_id, "device_name": "Pixel Test", "phone_connected": True, "connected": True,
        "active": True, "last_seen_seconds_ago": 0, "client_surface": "android", "device_form_factor": "phone",
        "session_token_prefix": (await relay.relay.sessions.list())[0].prefix, "battery": 81,
    } == found  # fmt: skip
    assert {"Pixel Test", "pixeltest", "pixel", "phone", phone.device_id} <= set(found["aliases"])
    assert abs(found["status_at"] - relay.relay.clock.now()) < 60
    assert found["capabilities"]["permanent"] == ["contacts_read"]


# which answer


async def test_only_the_socket_that_was_asked_may_answer_and_once(http: httpx.AsyncClient, simulate: Simulate) -> None:
    phone, other = await simulate(device_name="Asked"), await simulate(device_name="Other")
    beside = await simulate(session_token=phone.phone.token)
    await phone.status()
    asking, command = await asked(http, phone)
    for liar in (other, beside):
        await liar.respond(command["request_id"], 200, {"said": "by another"})
        await liar.status()
    await phone.respond("no such request", 200, {"said": "to nobody"})
    await phone.respond(command["request_id"], 200, {"said": "by the phone"})
    await phone.respond(command["request_id"], 200, {"said": "again"})
    assert (await asking).json() == {"said": "by the phone"}
    phone.silent = False
    await phone.status()
    assert (await http.post("/tap", json={"device": "asked"})).json()["ok"] is True


@pytest.mark.parametrize(
    ("status", "result", "expected"),
    [
        (200, {"ok": True}, (200, {"ok": True})),
        ("weird", 7, (200, {"value": 7})),
        (True, [1], (200, {"value": [1]})),
        (None, None, (200, {"value": None})),
        (204, {}, (200, {})),
        (100, {}, (200, {})),
        (99999, {}, (200, {})),
        (423, {"error": "locked"}, (423, {"error": "locked"})),
        (401, {"error": "who?"}, (403, {"error": "who?"})),
        (404, {"error": "node not found: w0:7"}, (404, {"error": "node not found: w0:7"})),
        (404, {"error": "unknown bridge path '/tap'"}, (404, {"error": "unknown bridge path '/tap'"})),
        (501, {}, (404, {"error": "This phone, or this version of its app, cannot do that."})),
    ],
)
async def test_what_a_phone_answers_is_passed_on_as_far_as_http_can_say_it(
    http: httpx.AsyncClient, simulate: Simulate, status: Any, result: Any, expected: Any
) -> None:
    phone = await simulate()
    phone.replies["/tap"] = lambda body: (status, result)
    answer = await http.post("/tap", json={})
    assert (answer.status_code, answer.json()) == expected
    unknown = "unknown" in str(result) or status == 501
    assert answer.headers.get("x-talaria-error") == (
        "not_supported" if unknown else "denied" if status == 401 else None
    )


async def test_an_answer_that_no_frame_can_hold_fails_its_own_command(
    http: httpx.AsyncClient, simulate: Simulate
) -> None:
    phone = await simulate()
    phone.silent = True
    small = asyncio.ensure_future(http.post("/tap", json={"n": 1}))
    first = await phone.command()
    large = asyncio.ensure_future(http.get("/screen"))
    second = await phone.command()
    await phone.respond(second["request_id"], 200, {"nodes": "x" * 4 * 1024 * 1024})
    assert code(await large) == (502, "response_too_large")
    await phone.respond(first["request_id"], 200, {"ok": True})
    assert (await small).status_code == 200
    nested: Any = 1
    for _ in range(400):
        nested = [nested]
    phone.silent = False
    phone.replies["/screen"] = lambda body: (200, nested)
    assert code(await http.get("/screen")) == (502, "response_too_large")
    assert (await http.get("/ping")).status_code == 200


async def test_an_answer_over_the_limit_of_the_socket_is_too_large(http: httpx.AsyncClient, simulate: Simulate) -> None:
    phone = await simulate()
    asking, command = await asked(http, phone)
    with suppress(ConnectionClosed):  # it may be cut off while it sends
        await phone.respond(command["request_id"], 200, {"nodes": "x" * (MAX_MESSAGE + 1)})
    assert code(await asking) == (502, "response_too_large")


async def test_an_answer_that_is_no_json_fails_its_own_command(http: httpx.AsyncClient, simulate: Simulate) -> None:
    phone = await simulate()
    asking, command = await asked(http, phone)
    await phone.phone.raw("[]")
    said = '{"channel": "bridge", "type": "bridge.response", "payload": {"request_id": "%s", "result": NaN}}'
    await phone.phone.raw(said % command["request_id"])
    assert code(await asking) == (502, "response_invalid")


# no answer


async def test_a_phone_that_does_not_answer_in_time(http: httpx.AsyncClient, simulate: Simulate) -> None:
    phone = await simulate()
    phone.silent = True
    answer = await http.post("/tap", json={}, headers={"X-Talaria-Timeout": "0.05"})
    assert (answer.status_code, answer.json()) == (504, {"error": "Phone did not respond within 0.05s"})
    assert code(answer) == (504, "timeout")
    late = (await phone.command())["request_id"]
    phone.silent = False
    await phone.respond(late, 200, {"late": True})
    assert "late" not in (await http.post("/tap", json={})).text
    assert code(await http.post("/tap", json={}, headers={"X-Talaria-Timeout": "soon"})) == (400, "payload_invalid")


async def test_a_phone_that_leaves_fails_only_its_own_commands(http: httpx.AsyncClient, simulate: Simulate) -> None:
    phone, other = await simulate(device_name="Leaves"), await simulate(device_name="Stays")
    asking, _ = await asked(http, phone)
    staying, command = await asked(http, other)
    await phone.phone.hang_up()
    answer = await asking
    assert code(answer) == (502, "device_offline")
    assert answer.json()["error"].startswith("Phone disconnected")
    await other.respond(command["request_id"], 200, {"ok": True})
    assert (await staying).status_code == 200


async def test_a_session_that_is_revoked_fails_its_command_at_once(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    phone = await simulate()
    asking, _ = await asked(http, phone)
    await relay.relay.sessions.revoke((await relay.relay.sessions.list())[0].prefix, actor="test")
    assert code(await asking) == (502, "device_offline")
    assert code(await http.post("/tap", json={"device": phone.device_id})) == (404, "device_unknown")
    assert (await http.get("/bridge/status")).status_code == 503


async def test_a_grant_that_ends_is_a_denial(http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate) -> None:
    phone = await simulate()
    asking, command = await asked(http, phone)
    prefix = (await relay.relay.sessions.list())[0].prefix
    await relay.relay.sessions.alter(prefix, Change(grants={"bridge": 1}))
    ends = relay.relay.clock.now() + 1
    while relay.relay.clock.now() <= ends:
        await relay.relay.db.read(lambda tx: None)
    await phone.respond(command["request_id"], 200, {"ok": True})
    assert code(await asking) == (403, "denied")
    assert code(await http.post("/tap", json={})) == (403, "denied")
    await phone.phone.hang_up()
    while (answer := await http.post("/tap", json={})).status_code == 502:
        pass
    assert code(answer) == (403, "denied")


async def test_more_than_a_phone_has_answered_is_refused(relay: RunningRelay, simulate: Simulate) -> None:
    phone = await simulate()
    phone.silent = True
    bridge = relay.relay.bridge
    waiting = [asyncio.ensure_future(bridge.ask(TAP, {"n": n}, caller="test")) for n in range(MAX_OF_DEVICE)]
    for _ in waiting:
        await phone.command()
    async with httpx.AsyncClient(base_url=relay.url, headers=relay.operator()) as http:
        assert code(await http.post("/tap", json={})) == (503, "overloaded")
    for command in list(phone.heard):
        await phone.respond(command["request_id"], 200, {"n": command["body"]["n"]})
    assert [(await one).result for one in waiting] == [{"n": n} for n in range(MAX_OF_DEVICE)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", 200), (b"null", 400), (b"[]", 400), (b"{", 400), (b'{"device": 7}', 400), (b'{"device": null}', 200),
        (b'{"a":' * 300 + b"1" + b"}" * 300, 400), (b'{"text": "' + b"x" * 1024 * 1024 + b'"}', 413),
    ],
)  # fmt: skip
async def test_what_is_no_body_of_a_command_is_refused(
    http: httpx.AsyncClient, simulate: Simulate, body: bytes, expected: int
) -> None:
    phone = await simulate()
    answer = await http.post("/tap", content=body)
    assert answer.status_code == expected
    assert expected == 200 or isinstance(answer.json()["error"], str)
    assert len(phone.heard) == (expected == 200)


async def test_other_methods_are_refused(http: httpx.AsyncClient) -> None:
    assert code(await http.put("/tap")) == (405, "method_not_allowed")


async def test_a_whole_name_goes_before_a_word_of_another(http: httpx.AsyncClient, simulate: Simulate) -> None:
    one, other = await simulate(device_name="Pixel"), await simulate(device_name="Pixel Fold")
    assert (await http.post("/tap", json={"device": "pixel"})).status_code == 200
    assert (len(one.heard), len(other.heard)) == (1, 0)


async def test_what_was_meant_for_one_that_is_away_is_not_done_on_another(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    one, other = await simulate(device_name="Pixel"), await simulate(device_name="Pixel Fold")
    await one.phone.hang_up()
    while relay.relay.bridge.is_online(one.device_id):
        await relay.relay.db.read(lambda tx: None)
    answer = await http.post("/tap", json={"device": "pixel"}, headers={"X-Talaria-Timeout": "0.05"})
    assert code(answer) == (503, "device_offline")
    assert other.heard == []


async def test_a_chosen_phone_that_is_revoked_stands_before_no_other(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    gone, left = await simulate(device_name="Old"), await simulate(device_name="New")
    await http.post("/bridge/select-active", json={"device": "old"})
    (prefix,) = [one.prefix for one in await relay.relay.sessions.list() if one.device_name == "Old"]
    await relay.relay.sessions.revoke(prefix, actor="test")
    while relay.relay.bridge.is_online(gone.device_id):
        await relay.relay.db.read(lambda tx: None)
    assert (await http.post("/tap", json={})).status_code == 200
    assert len(left.heard) == 1


async def test_callers_that_have_left_make_room(relay: RunningRelay, simulate: Simulate) -> None:
    phone, waiting = await simulate(), [True]
    phone.silent = True
    asking = [
        asyncio.ensure_future(relay.relay.bridge.ask(TAP, {}, caller="test", wanted=lambda: waiting[0]))
        for _ in range(MAX_OF_DEVICE)
    ]
    for _ in asking:
        await phone.command()
    waiting[0] = False
    phone.silent = False
    with pytest.raises(Overloaded):
        await relay.relay.bridge.ask(TAP, {}, caller="test")
    await asyncio.wait(asking)
    assert (await relay.relay.bridge.ask(TAP, {}, caller="test")).status == 200
    assert {type(one.exception()) for one in asking} == {DeviceOffline}
