from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from app.push.rules import Preferences


def until(now: str, start: str, end: str, zone: str = "Europe/Berlin") -> str | None:
    """The end of the quiet time in local time; None outside of it."""
    wishes = Preferences.model_validate({"quiet": {"from": start, "to": end, "zone": zone}})
    assert wishes.quiet is not None
    at = wishes.quiet.until(datetime.fromisoformat(now).replace(tzinfo=ZoneInfo(zone)).timestamp())
    return None if at is None else datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("now", "start", "end", "expected"),
    [
        ("2026-05-01 12:59:59", "13:00", "14:00", None),
        ("2026-05-01 13:00", "13:00", "14:00", "2026-05-01 14:00"),
        ("2026-05-01 13:59:59", "13:00", "14:00", "2026-05-01 14:00"),
        ("2026-05-01 14:00", "13:00", "14:00", None),
        ("2026-05-01 21:59", "22:00", "07:00", None),
        ("2026-05-01 22:00", "22:00", "07:00", "2026-05-02 07:00"),
        ("2026-05-01 23:59", "22:00", "07:00", "2026-05-02 07:00"),
        ("2026-05-02 00:00", "22:00", "07:00", "2026-05-02 07:00"),
        ("2026-05-02 06:59", "22:00", "07:00", "2026-05-02 07:00"),
        ("2026-05-02 07:00", "22:00", "07:00", None),
        ("2026-12-31 23:00", "22:00", "07:00", "2027-01-01 07:00"),
        # The night in which the clocks go forward has no 02:30, the one in which they go back has two.
        ("2026-03-28 23:00", "22:00", "02:30", "2026-03-29 03:30"),
        ("2026-10-24 23:00", "22:00", "02:30", "2026-10-25 02:30"),
        ("2026-03-29 01:59", "22:00", "07:00", "2026-03-29 07:00"),
    ],
)
def test_quiet_hours_in_the_zone_of_the_device(now: str, start: str, end: str, expected: str | None) -> None:
    assert until(now, start, end) == expected


def test_quiet_hours_end_in_the_future_also_when_the_clocks_go_back() -> None:
    zone = ZoneInfo("Europe/Berlin")
    wishes = Preferences.model_validate({"quiet": {"from": "22:00", "to": "02:30", "zone": "Europe/Berlin"}})
    second = datetime(2026, 10, 25, 2, 10, tzinfo=zone, fold=1).timestamp()  # 02:30 has been once already
    assert wishes.quiet is not None
    ends = wishes.quiet.until(second)
    assert ends is not None
    assert ends > second


def test_the_same_moment_is_night_here_and_day_there() -> None:
    assert until("2026-05-01 23:00", "22:00", "07:00", "Asia/Tokyo") == "2026-05-02 07:00"
    assert until("2026-05-01 16:00", "22:00", "07:00", "Europe/Berlin") is None


@pytest.mark.parametrize(
    "wishes",
    [
        {"kinds": {"sms": True}}, {"kinds": {"message": "perhaps"}}, {"min_turn_s": -1}, {"volume": 11},
        {"quiet": {"from": "25:00", "to": "07:00", "zone": "Europe/Berlin"}},
        {"quiet": {"from": "22:00", "to": "22:00", "zone": "Europe/Berlin"}},
        {"quiet": {"from": "22:00", "to": "07:00", "zone": "Europe/Atlantis"}},
        {"quiet": {"from": "22:00", "to": "07:00", "zone": "../../etc/passwd"}},
        {"quiet": {"from": "22:00", "to": "07:00", "zone": "Europe/Berlin", "except": ["sms"]}},
        {"quiet": {"from": "22:00", "to": "07:00"}},
    ],
)  # fmt: skip
def test_wishes_that_make_no_sense(wishes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Preferences.model_validate(wishes)


def test_what_is_not_named_has_its_default() -> None:
    assert Preferences.model_validate({"kinds": {"cron": False}}).as_json() == {
        "kinds": {"message": True, "cron": False, "turn": True, "approval": True, "question": True}, "quiet": None,
        "min_turn_s": 10.0,
    }  # fmt: skip
    again = Preferences.model_validate({"quiet": {"from": "22:00", "to": "07:00", "zone": "UTC"}})
    assert Preferences.model_validate_json(again.model_dump_json(by_alias=True)) == again
