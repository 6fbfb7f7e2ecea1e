from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sessions import grants
from app.sessions.errors import GrantUnknown

NOW = 1_800_000_000.0
DAY = 86400


def test_by_default_bridge_is_for_a_week_and_dashboard_is_not_given() -> None:
    ends = NOW + 30 * DAY
    assert grants.expiries(None, ends, NOW) == {
        "chat": ends, "terminal": ends, "bridge": NOW + 7 * DAY, "notifications": ends,
    }  # fmt: skip


def test_a_session_without_end_has_grants_without_end() -> None:
    granted = grants.expiries(None, None, NOW)
    assert granted.pop("bridge") == NOW + 7 * DAY
    assert set(granted.values()) == {None}


def test_no_grant_outlives_its_session() -> None:
    asked = {"chat": None, "terminal": 60, "dashboard": 99 * DAY}
    assert grants.expiries(asked, NOW + DAY, NOW) == {
        "chat": NOW + DAY, "terminal": NOW + 60, "dashboard": NOW + DAY,
    }  # fmt: skip
    assert grants.expiries({"chat": None}, None, NOW) == {"chat": None}


def test_an_unknown_grant_is_named() -> None:
    with pytest.raises(GrantUnknown, match="unknown grant 'voice'"):
        grants.expiries({"voice": 60}, None, NOW)


@pytest.mark.parametrize(
    "value", [True, False, -1, -0.5, math.nan, math.inf, -math.inf, "60", None, [], {}, 10**30, grants.MAX_SECONDS + 1]
)
def test_what_is_no_number_of_seconds_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="it must be"):
        grants.parse_seconds(value)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())))
def test_seconds_are_never_negative_and_only_zero_is_never(value: Any) -> None:
    try:
        seconds = grants.parse_seconds(value)
    except ValueError:
        assert isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= grants.MAX_SECONDS
    else:
        assert type(value) in (int, float)
        assert (seconds is None) == (value == 0)
        assert seconds is None or value <= seconds <= value + 1
