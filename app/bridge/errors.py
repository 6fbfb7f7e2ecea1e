"""Why a phone was not asked, or did not do what it was asked."""

from __future__ import annotations

from app.errors import NotSupported, RelayError


class AmbiguousDevice(RelayError):
    """More than one phone could be meant: name one with `device`, or choose one with POST /bridge/select-active."""

    code = "ambiguous_device"
    http_status = 409


class Denied(RelayError):
    """The owner did not allow it."""

    code = "denied"
    http_status = 403
    layer = "device"


class CommandUnsupported(NotSupported):
    """This phone, or this version of its app, cannot do that."""

    http_status = 404
    layer = "device"
