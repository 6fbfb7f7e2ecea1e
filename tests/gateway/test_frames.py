"""After auth whatever a client sends is answered, in order, and the socket stays."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from tests.phone import Phone
from tests.relay import RunningRelay

# What a tester once sent to a relay of this kind, and what ours says to each. Half of these ended its sockets.
ODD: list[tuple[Any, str]] = [
    ("[]", "frame_invalid"),
    ('"x"', "frame_invalid"),
    ("123", "frame_invalid"),
    ("null", "frame_invalid"),
    ("this is not JSON", "frame_invalid"),
    ('{"channel":null,"type":null}', "frame_invalid"),
    ('{"channel":{"a":1},"type":"x"}', "frame_invalid"),
    ('{"channel":"system","type":"ping","payload":[]}', "frame_invalid"),
    ('{"channel":"chat","type":"chat.send","payload":null}', "payload_invalid"),
    ('{"channel":"chat","type":"chat.send","payload":[]}', "frame_invalid"),
    ('{"channel":"chat","type":"chat.send","payload":{"message":""}}', "payload_invalid"),
    ('{"channel":"terminal","type":"terminal.attach","payload":"x"}', "frame_invalid"),
    ('{"channel":"voice","type":"voice.start","payload":{}}', "unknown_channel"),
    ('{"channel":"system","type":"nosuch"}', "unknown_type"),
    ('{"channel":"system","type":"ping","id":5,"payload":{}}', "frame_invalid"),
    ('{"channel":"system","type":"ping","id":{"a":1},"payload":{}}', "frame_invalid"),
    ('{"channel":"system","type":"ack","payload":{"epoch":1,"seq":"x"}}', "payload_invalid"),
    ('{"channel":"system","type":"auth","payload":{}}', "frame_out_of_turn"),
    ('{"channel":"system","type":"ping","payload":{"ts":' + "[" * 300 + "]" * 300 + "}}", "payload_invalid"),
    (b"\x00binary", "frame_invalid"),
]


@pytest.mark.parametrize(("raw", "code"), ODD, ids=[str(raw)[:60] for raw, _ in ODD])
async def test_an_odd_frame_is_refused_by_name_and_the_socket_stays(relay: RunningRelay, raw: Any, code: str) -> None:
    phone = await relay.connect()
    await phone.raw(raw)
    refused = await phone.until("error")
    assert refused.channel == "system"
    assert refused.payload["code"] == code
    assert refused.payload["layer"] == "relay"
    assert refused.payload["ref"] == refused.id
    await phone.ping()


async def test_a_null_payload_is_an_empty_one_and_an_id_may_be_absent(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.raw('{"channel":"system","type":"ping","payload":null,"profiles":null}')
    pong = await phone.until("pong")
    assert pong.id is None
    assert isinstance(pong.payload["ts"], float)


async def test_the_size_limits(relay: RunningRelay) -> None:
    phone = await relay.connect()
    await phone.raw(json.dumps({"channel": "system", "type": "ping", "id": "3M", "payload": {"x": "y" * 3_000_000}}))
    assert (await phone.until("pong")).id == "3M"
    await phone.raw(json.dumps({"channel": "system", "type": "ping", "id": "5M", "payload": {"x": "y" * 5_000_000}}))
    assert (await phone.until("error")).payload["code"] == "frame_invalid"
    await phone.ping()
    with suppress(ConnectionClosed):  # it may notice while still sending
        await phone.raw("x" * (17 * 1024 * 1024))
    assert (await phone.closed())[0] == 1009


async def test_too_many_bad_frames_end_the_link(relay: RunningRelay) -> None:
    phone = await relay.connect()
    for _ in range(21):
        await phone.raw("[]")
    assert await phone.closed() == (1008, "too many invalid frames")
    assert sum(frame.type == "error" for frame in phone.frames) == 21


@pytest.fixture
async def patient(relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> Phone:
    """A link that forgives any number of bad frames, so that a search may send thousands."""
    monkeypatch.setattr("app.wire.link.INVALID_SECONDS", 0.0)
    return await relay.connect()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(
    ["ping", "pong", "ack", "sync", "auth", "chat.send", "chat.watch", "chat.stop", "chat.sessions.list"]
)
FRAMES = st.fixed_dictionaries(
    {"channel": st.sampled_from(["system", "chat"]) | JSON, "type": TYPES | JSON},
    optional={"id": st.just("h") | JSON, "payload": JSON, "seq": JSON},
)


async def test_whatever_is_sent_is_answered_in_order(patient: Phone) -> None:
    """One link for the whole search: were it ever lost, everything after would fail."""
    import asyncio

    loop = asyncio.get_running_loop()
    sent: list[str | bytes] = []

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(FRAMES.map(json.dumps) | st.text(max_size=40) | st.binary(max_size=40))
    def collect(raw: str | bytes) -> None:
        sent.append(raw)

    await loop.run_in_executor(None, collect)
    assert len(sent) >= 300
    for raw in sent:
        await patient.raw(raw.encode(errors="surrogatepass").decode(errors="replace") if isinstance(raw, str) else raw)
        await patient.ping()
