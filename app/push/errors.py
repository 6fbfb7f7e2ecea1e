"""Why a device's wish about push is refused."""

from __future__ import annotations

from app.errors import RelayError


class ProviderOff(RelayError):
    """This relay does not push that way."""

    code = "push_provider_off"
    http_status = 409


class TargetInvalid(RelayError):
    """That is nothing a push could be sent to."""

    code = "push_target_invalid"
    http_status = 400


class TargetUnknown(RelayError):
    """This device has no such target."""

    code = "push_target_unknown"
    http_status = 404
