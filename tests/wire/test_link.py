from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from app.wire.close import PROTOCOL_BROKEN, TOO_BIG
from app.wire.link import INVALID_ALLOWED, MAX_BEFORE_AUTH, Close, Deliver, Link, Phase, Refuse, Verify

AUTH = json.dumps({"channel": "system", "type": "auth", "id": "a", "payload": {}}).encode()
PING = json.dumps({"channel": "system", "type": "ping", "id": "p"}).encode()


def opened() -> Link:
    link = Link()
    assert isinstance(link.receive(AUTH, 0), Verify)
    link.opened()
    return link


def test_the_first_frame_is_the_credential() -> None:
    action = Link().receive(PING, 0)
    assert isinstance(action, Close)
    assert (action.code, action.ref) == (PROTOCOL_BROKEN, "p")
    assert action.error is not None
    assert action.error.code == "frame_out_of_turn"


def test_anything_that_is_no_frame_ends_an_unknown_link() -> None:
    for raw, is_text in ((b"[]", True), (b"nonsense", True), (PING, False)):
        action = Link().receive(raw, 0, is_text=is_text)
        assert isinstance(action, Close)
        assert action.code == PROTOCOL_BROKEN


def test_a_stranger_gets_little_memory() -> None:
    action = Link().receive(b"x" * (MAX_BEFORE_AUTH + 1), 0)
    assert isinstance(action, Close)
    assert action.code == TOO_BIG


def test_after_auth_frames_are_delivered_and_a_second_auth_is_out_of_turn() -> None:
    link = opened()
    assert isinstance(link.receive(PING, 0), Deliver)
    again = link.receive(AUTH, 0)
    assert isinstance(again, Refuse)
    assert again.error.code == "frame_out_of_turn"
    assert isinstance(link.receive(PING, 0), Deliver)


def test_a_few_bad_frames_are_forgiven_and_many_in_a_short_time_are_not() -> None:
    patient, hasty = opened(), opened()
    for i in range(INVALID_ALLOWED * 3):
        assert isinstance(patient.receive(b"[]", i * 1.0), Refuse)
    for _ in range(INVALID_ALLOWED):
        assert isinstance(hasty.receive(b"[]", 5.0), Refuse)
    last = hasty.receive(b"[]", 5.0)
    assert isinstance(last, Close)
    assert last.code == PROTOCOL_BROKEN


@given(st.lists(st.sampled_from([AUTH, PING, b"[]", b"", b"{", b"\x00", b"x" * (MAX_BEFORE_AUTH + 1)]), max_size=40))
def test_nothing_is_delivered_before_auth_or_after_the_end(messages: list[bytes]) -> None:
    link, closed, verified = Link(), False, False
    for now, raw in enumerate(messages):
        action = link.receive(raw, float(now))
        if closed:
            assert isinstance(action, Close)
        if isinstance(action, Deliver | Refuse):
            assert verified
        if isinstance(action, Verify):
            verified = True
            link.opened()
        closed = closed or isinstance(action, Close)
        assert (link.phase is Phase.CLOSED) == closed
