from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import FrameInvalid
from app.wire.envelope import MAX_FRAME, Envelope, encode

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.text(max_size=64), st.text(max_size=64), st.none() | st.text(max_size=128), st.dictionaries(st.text(), JSON))
def test_what_is_encoded_is_parsed_the_same(channel: str, type_: str, id: str | None, payload: dict[str, Any]) -> None:
    frame = Envelope.parse(encode(channel, type_, payload, id=id))
    assert (frame.channel, frame.type, frame.id, frame.payload) == (channel, type_, id, payload)


@given(
    JSON | st.fixed_dictionaries({"channel": JSON, "type": JSON}, optional={"id": JSON, "payload": JSON, "seq": JSON})
)
def test_anything_is_a_frame_or_refused(value: Any) -> None:
    try:
        frame = Envelope.parse(json.dumps(value).encode())
    except FrameInvalid:
        return
    assert isinstance(frame.channel, str)
    assert isinstance(frame.type, str)
    assert frame.id is None or isinstance(frame.id, str)
    assert isinstance(frame.payload, dict)


@given(st.text().map(str.encode) | st.binary())
def test_any_bytes_are_a_frame_or_refused(raw: bytes) -> None:
    with suppress(FrameInvalid):
        assert isinstance(Envelope.parse(raw), Envelope)


def test_an_absent_or_null_payload_is_empty_and_an_absent_id_is_allowed() -> None:
    for tail in ("", ',"payload":null', ',"payload":{},"id":null', ',"profiles":null'):
        frame = Envelope.parse(b'{"channel":"system","type":"ping"' + tail.encode() + b"}")
        assert (frame.payload, frame.id) == ({}, None)


@pytest.mark.parametrize(
    ("raw", "ref"),
    [
        ('{"channel":"c","type":"t","id":5}', None),
        ('{"channel":"c","type":"t","id":"' + "x" * 129 + '"}', None),
        ('{"channel":"c","id":"known"}', "known"),
        ('{"channel":"c","type":"t","id":"known","payload":[]}', "known"),
        ('{"channel":"' + "c" * 65 + '","type":"t","id":"known"}', "known"),
    ],
)
def test_the_id_of_a_refused_frame_is_told_where_it_could_be_read(raw: str, ref: str | None) -> None:
    with pytest.raises(FrameInvalid) as refused:
        Envelope.parse(raw.encode())
    assert refused.value.ref == ref


def test_the_size_limit_counts_bytes() -> None:
    room = MAX_FRAME - len('{"channel":"c","type":"t","payload":{"x":""}}')

    def frame(text: str) -> bytes:
        return b'{"channel":"c","type":"t","payload":{"x":"' + text.encode() + b'"}}'

    assert Envelope.parse(frame("x" * room)).type == "t"
    assert Envelope.parse(frame("é" * (room // 2))).type == "t"
    for too_long in ("x" * (room + 1), "é" * (room // 2 + 1)):
        with pytest.raises(FrameInvalid, match="at most"):
            Envelope.parse(frame(too_long))


def test_deep_nesting_is_refused_not_crashed_on() -> None:
    with pytest.raises(FrameInvalid):
        Envelope.parse(b'{"channel":"c","type":"t","payload":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001)
