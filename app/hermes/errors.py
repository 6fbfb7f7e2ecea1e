"""What can go wrong between the relay and Hermes, and how an answer of Hermes becomes one of these."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from app.errors import RelayError

_SHOWN = 500  # characters of Hermes' own words
_DIGITS = 9  # of Retry-After


class UpstreamError(RelayError):
    layer = "upstream"
    http_status = 502


class UpstreamUnreachable(UpstreamError):
    """Hermes cannot be reached."""

    code = "upstream_unreachable"
    http_status = 503
    retryable = True


class UpstreamTimeout(UpstreamUnreachable):
    """Hermes does not answer in time: it hangs, or its host is away. Look at its log, or restart it."""

    code = "upstream_timeout"
    http_status = 504


class UpstreamUnanswered(UpstreamError):
    """Hermes closed the connection before it answered: whether it did what was asked is not known."""

    code = "upstream_unanswered"


class UpstreamKeyShort(UpstreamUnreachable):
    """Hermes' API server takes no key under 16 characters: make API_SERVER_KEY and TALARIA_HERMES_API_KEY longer."""

    code = "upstream_key_short"
    http_status = 502
    retryable = False


class UpstreamAuthRequired(UpstreamError):
    """Hermes does not accept the relay's key: set TALARIA_HERMES_API_KEY to its API_SERVER_KEY."""

    code = "upstream_auth_required"


class UpstreamRefused(UpstreamError):
    """Hermes refused the request."""

    code = "upstream_refused"


class UpstreamFailed(UpstreamError):
    """Hermes failed on the request."""

    code = "upstream_failed"
    retryable = True


class UpstreamBusy(UpstreamError):
    """Hermes has more to do than it takes; try again shortly."""

    code = "upstream_busy"
    http_status = 503
    retryable = True


class UpstreamRestarting(UpstreamError):
    """Hermes is restarting and takes nothing new; try again shortly."""

    code = "upstream_restarting"
    http_status = 503
    retryable = True


class UpstreamInvalid(UpstreamError):
    """Hermes answered with something that the relay does not understand."""

    code = "upstream_invalid"


class UpstreamOff(UpstreamError):
    """This needs the API server of Hermes: TALARIA_HERMES_API_URL is empty."""

    code = "upstream_off"
    http_status = 503


class UpstreamInsecure(UpstreamError):
    """A credential of Hermes would travel in the clear."""

    code = "upstream_insecure"


class UpstreamUntrusted(UpstreamUnreachable):
    """Hermes' certificate is not valid: renew it, or let this host trust its authority. Nothing was sent there."""

    code = "upstream_untrusted"
    http_status = 502
    retryable = False


class UpstreamDiffers(UpstreamError):
    """The local and the remote URL lead to two different Hermes: the relay uses one only. Set both to the same."""

    code = "upstream_differs"


class UpstreamUnsupported(UpstreamError):
    """This Hermes does not offer what the request needs."""

    code = "upstream_unsupported"


class RouteMissing(UpstreamUnsupported):
    """This Hermes has no such route."""


class SessionNotFound(UpstreamError):
    """Hermes has no such conversation."""

    code = "session_not_found"
    http_status = 404


class ProfileUnknown(UpstreamError):
    """Hermes has no such profile, or serves one profile only: turn on its multiplex_profiles to reach others."""

    code = "profile_unknown"
    http_status = 404


class TitleRefused(UpstreamError):
    """Hermes does not take this title."""

    code = "title_refused"
    http_status = 409


class HistoryHidden(UpstreamError):
    """This conversation was forked, and this Hermes shows the fork's messages in its place: go on in the fork."""

    code = "history_hidden"
    http_status = 409


class RunNotFound(UpstreamRefused):
    """Hermes has no such run: it has ended, or Hermes has restarted."""


class ApprovalNotPending(UpstreamRefused):
    """Hermes waits for no approval there."""


class StreamBroken(UpstreamError):
    """The stream from Hermes ended before its end."""

    code = "upstream_stream_broken"
    retryable = True


_NAMED: Mapping[str, type[UpstreamError]] = {
    "session_not_found": SessionNotFound,
    "run_not_found": RunNotFound,
    "approval_not_active": ApprovalNotPending,
    "approval_not_pending": ApprovalNotPending,
}
_UNKNOWN_PROFILE = "Unknown or unconfigured profile"  # comes without a code


def refusal_of(status: int, body: bytes, retry_after: str | None = None) -> UpstreamError:
    """The error for an HTTP status that is no success."""
    code, said = _error_in(body)
    if status == 401:
        return UpstreamAuthRequired()
    if status == 404 and said == _UNKNOWN_PROFILE:
        return ProfileUnknown()
    if status in (404, 409) and code in _NAMED:
        return _NAMED[code]()
    if status in (404, 405) and not code:
        return RouteMissing()
    words = f"{said[:_SHOWN]} (HTTP {status})" if said else f"HTTP {status}"
    if code == "invalid_title":
        return TitleRefused(f"Hermes does not take this title: {words}")
    if code == "gateway_draining":
        return UpstreamRestarting(retry_after=_seconds(retry_after or ""))
    if status in (429, 503):
        return UpstreamBusy(f"Hermes is busy: {words}", retry_after=_seconds(retry_after or ""))
    if status >= 500:
        return UpstreamFailed(f"Hermes failed: {words}")
    if 300 <= status < 400:
        return UpstreamRefused("Hermes answered with a redirect: TALARIA_HERMES_API_URL is not its API server")
    return UpstreamRefused(f"Hermes refused: {words}")


def unreached(exc: Exception) -> UpstreamError:
    """For what went wrong before there was an answer. Its own words are not shown: they may name the host."""
    if is_untrusted(exc):
        return UpstreamUntrusted(detail=type(exc).__name__)
    silent = isinstance(exc, TimeoutError | httpx.TimeoutException)
    return (UpstreamTimeout if silent else UpstreamUnreachable)(detail=type(exc).__name__)


def is_untrusted(exc: BaseException | None) -> bool:
    """Whether a certificate was at the bottom of it."""
    while exc is not None:
        if isinstance(exc, ssl.SSLCertVerificationError):
            return True
        exc = exc.__cause__ or exc.__context__
    return False


def _seconds(retry_after: str) -> int | None:
    """None for a date, and for a number of seconds that is no time to wait but would break who counts with it."""
    return int(retry_after) if retry_after.isdecimal() and len(retry_after) <= _DIGITS else None


def _error_in(body: bytes) -> tuple[str, str]:
    """Code and message of Hermes' error envelope, which some routes shorten to a string."""
    try:
        answer: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", ""
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return str(error.get("code") or ""), str(error.get("message") or "")
    return "", error if isinstance(error, str) else ""
