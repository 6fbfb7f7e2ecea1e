"""What is remembered of phones and commands: without secrets, within bounds, and over a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy import text

from app.bridge.activity import MAX_ENTRIES, Activity, redacted
from app.bridge.commands import BY_NAME
from app.bridge.devices import Device, Devices
from app.bridge.store import Said
from app.sessions.changes import Change
from tests.bridge.conftest import Simulate
from tests.bridge.phone_simulator import simulated
from tests.relay import RunningRelay, running, settings_for

JWT = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"


async def test_an_entry_says_what_was_asked_and_what_came_of_it(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    phone = await simulate(device_name="Pixel Test")
    await http.post("/tap", json={"x": 1, "device": "pixel"})
    phone.refused.add("/type")
    await http.post("/type", json={"text": "pw"})
    phone.silent = True
    await http.post("/tap", json={}, headers={"X-Talaria-Timeout": "0.05"})
    timed_out, refused, tapped = (await http.get("/bridge/activity", params={"limit": 10})).json()["activity"]
    assert tapped == {
        "request_id": phone.heard[0]["request_id"], "method": "POST", "path": "/tap", "params": {"x": 1},
        "sent_at": tapped["sent_at"], "response_status": 200, "result_summary": '{"ok":true,"echo":{"x":1}}',
        "error": None, "decision": "executed", "device_id": phone.device_id, "device_name": "Pixel Test",
        "alias_used": "pixel", "caller": "operator",
    }  # fmt: skip
    assert abs(tapped["sent_at"] - relay.relay.clock.now() * 1000) < 60_000
    assert (refused["response_status"], refused["decision"], refused["alias_used"]) == (403, "error", None)
    assert "bridge_capability_denied" in refused["result_summary"]
    assert (timed_out["response_status"], timed_out["error"], timed_out["decision"]) == (504, "timeout", "error")


@pytest.mark.parametrize(
    "name", ["token", "api_key", "access_token", "x_secret_key", "password", "otp", "bearer", "refreshToken", "Cookie"]
)
@pytest.mark.parametrize("depth", [0, 1, 2, 9])
async def test_what_is_secret_by_its_name_stands_nowhere(name: str, depth: int) -> None:
    said: Any = {name: "hunter2!", "x": 5}
    for _ in range(depth):
        said = {"inner": [said]}
    activity, tap = Activity(), BY_NAME["tap"]
    entry = activity.begin("r", tap, said, now=0.0, device=("d", "D"), alias=None, caller="test")
    activity.answered(entry, tap, said, 200, said, 9)
    assert "hunter2" not in str(activity.latest(1))
    instead = "[redacted]" if depth < 9 else "[cut]"
    assert instead in str(entry["params"])
    assert instead in entry["result_summary"]


@pytest.mark.parametrize("secret", [JWT, "Bearer abcdefghijklmnop", "sk-abcdefghijklmnopqrstuv"])
def test_what_is_secret_by_its_looks_is_not_shown(secret: str) -> None:
    assert secret not in str(redacted({"a": [{"b": f"see {secret} there"}]}))
    assert secret not in str(redacted({secret: 1}))


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("type", {"text": 'hun"ter2'}, {"ok": True, "typed": 'hun"ter2'}),
        ("clipboard_write", {"text": "hunter2" * 100}, {"ok": True, "now": "hunter2" * 100}),
        ("send_sms", {"to": "1", "body": "hunter2"}, {"said": "hunter2"}),
        ("type", {"text": "hunter2\nhunter2"}, {"ok": True, "typed": "hunter2\nhunter2"}),
        ("type", {"text": "say hunter2 " * 30}, {"ok": True, "typed": "say hunter2 " * 30}),
        ("type", {"Text": "hunter2"}, {"ok": True, "was": "hunter2"}),
        ("type", {"?text": "hunter2"}, {"ok": True}),
        ("send_intent", {"action": "SEND", "extras": {"body": "hunter2"}}, {"ok": True}),
        ("clipboard_read", {}, {"text": "hunter2"}),
        ("screen", {}, {"nodes": [{"text": "hunter2"}]}),
        ("search_contacts", {"query": "A"}, {"contacts": [{"number": "hunter2"}]}),
    ],
)
def test_what_is_typed_or_read_is_not_shown(name: str, args: dict[str, Any], result: Any) -> None:
    activity, command = Activity(), BY_NAME[name]
    entry = activity.begin("r", command, args, now=0.0, device=("d", "D"), alias=None, caller="test")
    activity.answered(entry, command, args, 200, result, 9)
    assert "hunter2" not in str(entry)
    assert "ter2" not in str(entry)
    assert len(entry["result_summary"]) <= 240


@pytest.mark.parametrize("typed", ["hunter2", "hunter2\nhunter2", "say hunter2 " * 30, 77_222, "%32hunter2"])
def test_a_refusal_is_told_without_what_was_typed(typed: Any) -> None:
    activity, command, args = Activity(), BY_NAME["type"], {"text": typed}
    entry = activity.begin("r", command, args, now=0.0, device=("d", "D"), alias=None, caller="test")
    activity.answered(entry, command, args, 409, {"error": f"no field has the focus: {typed}", "was": typed}, 9)
    assert entry["result_summary"] == '{"error":"no field has the focus: [redacted]","was":"[redacted]"}'


@pytest.mark.parametrize(
    "said",
    [
        "pin=hunter2", "token=hunter2", [["password", "hunter2"]], {"passcode": "hunter2"},
        {"name": "password", "value": "hunter2"}, {"key": "X-Api-Key", "value": "hunter2"},
    ],
)  # fmt: skip
def test_a_secret_beside_its_name_is_not_shown(said: Any) -> None:
    assert "hunter2" not in str(redacted({"said": said}))


async def test_a_long_selector_is_not_kept(http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate) -> None:
    await simulate(device_name="Pixel")
    answer = await http.post("/tap", json={"device": "pixel" + "_" * 300})
    assert (answer.status_code, answer.headers["x-talaria-error"]) == (404, "device_unknown")
    assert "pixel" not in answer.text


@pytest.mark.parametrize(
    "value",
    [
        {"n" * 10_000: "v" * 10_000}, [["x"] * 1000] * 1000, {str(n): n for n in range(10_000)},
        [[[[[[[[[[[[1]]]]]]]]]]]],
    ],
    ids=["long", "wide", "many", "deep"],
)  # fmt: skip
def test_an_entry_is_short_whatever_was_said(value: Any) -> None:
    assert len(orjson.dumps(redacted({"value": value}))) < 16_000


def test_only_so_many_are_kept() -> None:
    activity, tap = Activity(), BY_NAME["tap"]
    for n in range(MAX_ENTRIES + 5):
        activity.answered(
            activity.begin(f"r{n}", tap, {}, now=0.0, device=("d", "D"), alias=None, caller="test"), tap, {}, 200, {}, 2
        )
    found = activity.latest(10_000)
    assert (len(found), len(activity.fresh)) == (MAX_ENTRIES, MAX_ENTRIES)
    assert found[0]["request_id"] == f"r{MAX_ENTRIES + 4}"


async def test_what_is_known_survives_a_restart(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    async with running(settings) as relay, simulated(relay, device_name="Pixel") as one:
        async with (
            simulated(relay, device_name="Boox"),
            httpx.AsyncClient(base_url=relay.url, headers=relay.operator()) as http,
        ):
            await http.post("/bridge/select-active", json={"device": "pixel"})
            await http.post("/tap", json={"x": 7})
            await one.status(battery=3)
            before = (await http.get("/bridge/activity")).json()
        assert before["activity"][0]["params"] == {"x": 7}
    async with running(settings) as relay, httpx.AsyncClient(base_url=relay.url, headers=relay.operator()) as http:
        status = (await http.get("/bridge/status")).json()
        assert (status["device_name"], status["battery"], status["active"]) == ("Pixel", 3, True)
        assert (status["phone_connected"], status["connected"]) == (False, False)
        assert (await http.get("/bridge/devices")).json()["count"] == 2
        assert (await http.get("/bridge/activity")).json() == before


async def test_what_was_renamed_or_revoked_is_known_as_that(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    phone = await simulate(device_name="Pixel")
    prefix = (await relay.relay.sessions.list())[0].prefix
    await relay.relay.sessions.alter(prefix, Change(name="Kitchen tablet"))
    found = (await http.get("/bridge/devices")).json()["devices"]
    assert [one["device_name"] for one in found] == ["Kitchen tablet"]
    assert (await http.post("/tap", json={"device": "kitchen"})).status_code == 200
    await relay.relay.sessions.revoke(prefix, actor="test")
    assert (await http.get("/bridge/devices")).json() == {
        "active_device_id": None, "most_recent_device_id": None, "devices": [], "count": 0,
    }  # fmt: skip
    assert phone.heard[0]["path"] == "/tap"


async def test_a_full_disk_stops_no_command(http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate) -> None:
    await simulate()
    db = relay.relay.db
    pages = await db.read(lambda tx: tx.one(text("PRAGMA page_count")))
    assert pages is not None
    await db.write(lambda tx: tx.execute(text(f"PRAGMA max_page_count={pages[0]}")).close())
    for _ in range(3):
        assert (await http.post("/tap", json={"x": 1})).status_code == 200
    await db.write(lambda tx: tx.execute(text("PRAGMA max_page_count=100000")).close())


def test_one_that_speaks_while_the_others_are_looked_up_is_kept() -> None:
    devices = Devices(lambda _: False)
    known = devices.ids
    devices.put(Device("d1", "Pixel", {}, Said("s1", b"{}", 0.0)))
    devices.keep({}, known)
    assert devices.ids == {"d1"}
    devices.keep({}, devices.ids)
    assert devices.ids == frozenset()


async def test_a_status_that_nothing_could_carry_is_refused(
    http: httpx.AsyncClient, relay: RunningRelay, simulate: Simulate
) -> None:
    phone = await simulate()
    nested: Any = None
    for _ in range(252):
        nested = [nested]
    await phone.status(x=nested)
    (refusal,) = [frame for frame in phone.phone.frames if frame.type == "error"]
    assert refusal.payload["code"] == "payload_invalid"
    assert "x" not in (await http.get("/bridge/status")).json()
