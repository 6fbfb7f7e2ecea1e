"""What goes wrong at the edge, and how an error looks over HTTP."""

from __future__ import annotations

import logging

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from app.errors import RelayError

log = logging.getLogger("talaria.http")


class HostUnknown(RelayError):
    """This relay does not answer to that host name; TALARIA_PUBLIC_URL and TALARIA_ALLOWED_HOSTS say which it has."""

    code = "host_unknown"
    http_status = 421


class OriginRefused(RelayError):
    """A page of that origin may not use this relay; TALARIA_PUBLIC_URL says which origin may."""

    code = "origin_refused"
    http_status = 403


class OriginUnknown(RelayError):
    """This relay proves itself under its own origin only: TALARIA_PUBLIC_URL, or loopback where that is not set."""

    code = "origin_unknown"
    http_status = 421


class OperatorRequired(RelayError):
    """This needs the operator token of the relay's data directory, as a bearer."""

    code = "operator_required"
    http_status = 401


class HostRequired(RelayError):
    """This needs the link token, or the operator token, of the relay's data directory, as a bearer."""

    code = "host_required"
    http_status = 401


class BearerRequired(RelayError):
    """Authorization: Bearer <session_token> required"""

    code = "session_required"
    http_status = 401


class DeviceRequired(RelayError):
    """This answers for a paired device, by its session token; the operator and the link are none."""

    code = "device_required"
    http_status = 403


class BodyInvalid(RelayError):
    """The body lacks a field or a field has the wrong type."""

    code = "payload_invalid"
    http_status = 400


class BodyTooLarge(RelayError):
    """The body is larger than this route takes."""

    code = "body_too_large"
    http_status = 413


class RequestStalled(RelayError):
    """The request stopped in the middle; send it again."""

    code = "request_stalled"
    layer = "device"
    http_status = 408
    retryable = True


class RequestInvalid(RelayError):
    """This is not HTTP/1.1 as RFC 9112 has it: a program or a proxy in front of the relay writes it wrongly."""

    code = "request_invalid"
    http_status = 400


class HeadTooLarge(RelayError):
    """The headers of this request are larger than 64 KiB: cookies, or what a proxy adds."""

    code = "head_too_large"
    http_status = 431


class MethodNotAllowed(RelayError):
    """There is something at this path, but not for this method."""

    code = "method_not_allowed"
    http_status = 405


class UpgradeRequired(RelayError):
    """A WebSocket is here, and no upgrade to one arrived: the proxy in front has to pass Upgrade and Connection on."""

    code = "upgrade_required"
    http_status = 426


class NotStoppable(RelayError):
    """The relay is the main process of its container, which would end with it: stop it from the host."""

    code = "not_stoppable"
    http_status = 409


def refuse(scope: Scope, error: RelayError) -> Response:
    """`render`, and a line in the log where the relay or what is behind it failed."""
    if error.http_status >= 500:
        log.warning("request failed", extra={"path": scope["path"], "code": error.code, "reason": error.detail})
    return render(scope, error)


def render(scope: Scope, error: RelayError, status: int | None = None) -> Response:
    """`{"error": …}`, with the code in a header for those who read no body."""
    body = {
        "code": error.code, "message": error.message, "layer": error.layer, "retryable": error.retryable,
        "request_id": scope.get("state", {}).get("request_id"),
    }  # fmt: skip
    return JSONResponse({"error": body}, status or error.http_status, headers_of(error))


def headers_of(error: RelayError) -> dict[str, str]:
    headers = {"X-Talaria-Error": error.code}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, UpgradeRequired):
        headers["Upgrade"] = "websocket"  # RFC 9110 asks for it
    return headers
