"""What the dashboard's own refusals mean."""

from __future__ import annotations

from typing import Any

from app.hermes.errors import (
    SessionNotFound,
    StreamBroken,
    UpstreamBusy,
    UpstreamError,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
    UpstreamUnsupported,
    unreached,
)
from app.hermes.routes import Route

_SHOWN = 500  # characters of Hermes' own words
_NO_SESSION = (4001, 4007)  # not live; not stored
_FULL = 4090
_NO_METHOD = -32601


class Unanswered(StreamBroken):
    """Hermes may have got the request, and its answer did not come."""


class CallRefused(UpstreamRefused):
    """Hermes refused the call."""

    number = 0  # Hermes' own code


def unreachable(route: Route, exc: Exception) -> UpstreamError:
    error = unreached(exc)
    if type(error) is UpstreamUnreachable or type(error) is UpstreamTimeout:
        return UpstreamUnreachable(
            "the dashboard of Hermes does not answer: start it with `hermes dashboard --no-open`, or set "
            f"{route.setting} to where it is, or to nothing",
            detail=error.detail,
        )
    return error


def call_error(error: Any) -> UpstreamError:
    """The error for the `error` of a JSON-RPC answer."""
    error = error if isinstance(error, dict) else {}
    number, said = error.get("code"), str(error.get("message") or "")[:_SHOWN]
    if number in _NO_SESSION:
        return SessionNotFound()
    if number == _NO_METHOD:
        return UpstreamUnsupported(f"this Hermes does not offer that: {said}")
    if number == _FULL:
        return UpstreamBusy(f"Hermes is busy: {said}")
    if not isinstance(number, int) or number < 0 or 5000 <= number < 6000:
        return UpstreamFailed(f"Hermes failed: {said}")
    refused = CallRefused(f"Hermes refused: {said}")
    refused.number = number
    return refused
