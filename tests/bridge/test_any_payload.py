"""Whatever a phone says on the channel: a typed refusal or none, and the socket lives."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bridge.conftest import Simulate

NAMES = ["device", "bridge", "request_id", "status", "result", "name", "ts", "capabilities"]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), inner),
    max_leaves=12,
)
PAYLOAD = st.dictionaries(st.sampled_from(NAMES), JSON) | JSON
CODES = {"payload_invalid", "frame_invalid", "unknown_type"}
MANY = 150


async def examples(strategy: st.SearchStrategy[Any]) -> list[Any]:
    """Of a search, made beside the loop: one phone for all of them. Were it ever lost, everything after would fail."""
    found: list[Any] = []

    @settings(max_examples=MANY, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    await asyncio.get_running_loop().run_in_executor(None, collect)
    assert len(found) >= MANY
    return found


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that forgives any number of bad frames."""
    monkeypatch.setattr("app.wire.link.INVALID_SECONDS", 0.0)


async def test_a_frame_of_the_channel(http: httpx.AsyncClient, simulate: Simulate) -> None:
    phone = await simulate()
    types = st.sampled_from(["bridge.status", "bridge.response", "bridge.command"])
    for type_, payload in await examples(st.tuples(types, PAYLOAD)):
        await phone.phone.send("bridge", type_, payload, id="said")
        await phone.status()
        assert (await http.get("/bridge/status")).status_code == 200
    refusals = [frame.payload for frame in phone.phone.frames if frame.type == "error"]
    assert {refusal["code"] for refusal in refusals} == CODES
    assert {refusal["layer"] for refusal in refusals} == {"relay"}
    assert (await http.post("/tap", json={})).status_code == 200


async def test_an_answer(http: httpx.AsyncClient, simulate: Simulate) -> None:
    phone = await simulate()
    for status, result in await examples(st.tuples(JSON, JSON)):
        phone.replies["/tap"] = lambda body, status=status, result=result: (status, result)
        answer = await http.post("/tap", json={})
        assert 200 <= answer.status_code <= 599
        assert isinstance(answer.json(), dict)
        assert (await http.get("/bridge/activity")).json()["activity"][0]["path"] == "/tap"


async def test_a_command(http: httpx.AsyncClient, simulate: Simulate) -> None:
    phone = await simulate()
    query = st.dictionaries(st.sampled_from([*NAMES, "deviceId"]), st.text(max_size=8))
    for body, params in await examples(st.tuples(PAYLOAD, query)):
        assert (await http.post("/tap", json=body, params=params)).status_code in (200, 400, 404)
        assert (await http.get("/screen", params=params)).status_code in (200, 404)
    assert (await http.get("/ping")).status_code == 200
    assert phone.heard
