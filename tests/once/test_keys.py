from __future__ import annotations

import pytest

from app.once.keys import key_of


def test_a_named_field_comes_before_the_frames_id() -> None:
    assert key_of("chat.send", {"client_msg_id": "mine"}, "frame") == "mine"
    assert key_of("proactive.reply", {"message_id": "bubble"}, "frame") == "bubble"
    assert key_of("proactive.reply", {"message_id": "bubble", "client_msg_id": "mine"}, "frame") == "mine"


@pytest.mark.parametrize("payload", [{}, {"client_msg_id": None}, {"client_msg_id": ""}])
def test_otherwise_the_frames_id_is_the_key_and_without_one_there_is_none(payload: dict[str, str | None]) -> None:
    assert key_of("chat.send", payload, "frame") == "frame"
    assert key_of("chat.send", payload, None) is None


def test_a_type_that_is_not_declared_cannot_claim_a_key() -> None:
    with pytest.raises(KeyError):
        key_of("terminal.input", {"client_msg_id": "x"}, "frame")
