"""Channels that share a name, and what may not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.channels.base import Call, Channel, Dispatch, receives
from app.clock import ManualClock
from app.errors import GrantMissing, UnknownType
from app.wire.envelope import Envelope
from tests.turns.rooms import Phone


class First(Channel):
    name = "shared"
    grant = "chat"

    @receives("one", None)
    def one(self, payload: Mapping[str, Any], call: Call) -> None:
        call.answer("said", {"by": type(self).__name__})


class Second(Channel):
    name = "shared"
    grant = "chat"

    @receives("two", None)
    def two(self, payload: Mapping[str, Any], call: Call) -> None:
        call.answer("said", {"by": type(self).__name__})


class Told(Channel):
    name = "shared"
    grant = "chat"

    @receives("told", None, needs_grant=False)
    def told(self, payload: Mapping[str, Any], call: Call) -> None:
        call.answer("said", {"by": type(self).__name__})


class Doubled(First): ...


class OtherGrant(Second):
    grant = "terminal"


def said(dispatch: Dispatch, type_: str, phone: Phone | None = None) -> str:
    phone = phone or Phone()
    dispatch(Envelope("shared", type_, "f", {}), phone)
    return str(phone.frames[0]["payload"]["by"])


def test_channels_of_one_name_share_it_and_its_grant() -> None:
    dispatch = Dispatch([First(), Second()], ManualClock())
    assert (said(dispatch, "one"), said(dispatch, "two")) == ("First", "Second")
    for type_ in ("one", "two"):
        with pytest.raises(GrantMissing):
            said(dispatch, type_, Phone(grants={}))


def test_what_a_device_only_tells_needs_no_grant_where_its_channel_says_so() -> None:
    dispatch = Dispatch([First(), Told()], ManualClock())
    assert said(dispatch, "told", Phone(grants={})) == "Told"
    for type_ in ("one", "unheard"):
        with pytest.raises(GrantMissing):
            said(dispatch, type_, Phone(grants={}))


@pytest.mark.parametrize(
    ("other", "complaint"), [(Doubled, "two channels receive shared/one"), (OtherGrant, "need different grants")]
)
def test_a_type_has_one_receiver_and_a_name_one_grant(other: type[Channel], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Dispatch([First(), other()], ManualClock())


def test_a_channel_can_be_replaced() -> None:
    dispatch = Dispatch([First(), Second()], ManualClock())
    dispatch.replace(Doubled())
    assert said(dispatch, "one") == "Doubled"
    with pytest.raises(UnknownType):
        said(dispatch, "two")
