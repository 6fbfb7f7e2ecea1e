"""What only a caller of tools is told."""

from __future__ import annotations

from app.errors import RelayError


class ArgumentsInvalid(RelayError):
    """The arguments are not what this tool takes."""

    code = "payload_invalid"
    http_status = 400


class PhoneRefused(RelayError):
    """The phone did not do it; what it says about that follows."""

    code = "phone_refused"
    http_status = 502
    layer = "device"


class NoPicture(RelayError):
    """The phone answered without a picture."""

    code = "no_picture"
    http_status = 502
    layer = "device"
