"""What a device may be allowed, and for how long. Seconds count from now; None is never.

Outside, `0` seconds means never: that is how the existing clients write it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from app.sessions.errors import GrantUnknown

KNOWN = ("chat", "terminal", "bridge", "desktop", "tui", "dashboard", "notifications")
MAX_SECONDS = 100 * 365 * 86400  # a larger number is a mistake in the unit, not a wish

Seconds = Mapping[str, int | None]
Expiries = Mapping[str, float | None]

# `bridge` reaches the phone itself, so it is asked for again each week. The others that are known open nothing yet.
DEFAULT: Seconds = {"chat": None, "terminal": None, "bridge": 7 * 86400, "notifications": None}


def check(seconds: Seconds) -> Seconds:
    """Raises GrantUnknown."""
    for name in seconds:
        if name not in KNOWN:
            raise GrantUnknown(f"unknown grant {name!r}")
    return seconds


def parse_seconds(value: object) -> int | None:
    """0 → never. A fraction counts as a whole second, so that it never becomes 0. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("it must be a number")
    if value < 0:
        raise ValueError("it must be >= 0")
    if value > MAX_SECONDS:
        raise ValueError(f"it must be <= {MAX_SECONDS}")
    return math.ceil(value) or None


def expiry(seconds: int | None, now: float) -> float | None:
    return None if seconds is None else now + seconds


def expiries(seconds: Seconds | None, session_ends: float | None, now: float) -> dict[str, float | None]:
    """The grants of a new session. None: the defaults."""
    asked = DEFAULT if seconds is None else check(seconds)
    return clamp({name: expiry(asked[name], now) for name in KNOWN if name in asked}, session_ends)


def clamp(grants: Expiries, session_ends: float | None) -> dict[str, float | None]:
    """No grant outlives its session."""
    return {name: earlier(end, session_ends) for name, end in grants.items()}


def earlier(a: float | None, b: float | None) -> float | None:
    ends = [end for end in (a, b) if end is not None]
    return min(ends) if ends else None
