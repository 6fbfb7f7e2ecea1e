"""Why a message, or a reply, cannot be kept or taken back."""

from __future__ import annotations

from app.errors import RelayError


class DeviceUnknown(RelayError):
    """There is no such device; `talaria devices` lists those that are paired."""

    code = "device_unknown"
    http_status = 404


class NobodyListens(RelayError):
    """No paired device takes messages yet: pair a phone, or let it connect once."""

    code = "no_devices"
    http_status = 409


class MessageUnknown(RelayError):
    """There is no such message, or it is no longer known."""

    code = "message_unknown"
    http_status = 404


class MessageExpired(RelayError):
    """A message that has expired already is not kept: ttl_seconds must be above zero."""

    code = "message_expired"
    http_status = 400


class MessageTooBig(RelayError):
    """The message is longer than one may be."""

    code = "message_too_big"
    http_status = 413


class MailboxFull(RelayError):
    """More waits for this device than may; it has to come back first."""

    code = "mailbox_full"
    http_status = 507
    retryable = True
    layer = "device"


class QuotaExceeded(RelayError):
    """This device has sent more than it may in this time."""

    code = "quota_exceeded"
    http_status = 429
    retryable = True


class RepliesFull(RelayError):
    """More replies wait than may: nothing on the host fetches them from /phone/replies."""

    code = "replies_full"
    http_status = 507
    retryable = True
    layer = "agent"


class DeviceOffline(RelayError):
    """The device is not connected, and did not come in time."""

    code = "device_offline"
    http_status = 503
    retryable = True
    layer = "device"


class DeviceLeft(DeviceOffline):
    """The device's connection ended before it answered: whether it did what it was asked is not known."""

    http_status = 502
    retryable = False  # it may have done it


class CallTimeout(RelayError):
    """The device is connected but did not answer in time: whether it did what it was asked is not known."""

    code = "timeout"
    http_status = 504
    layer = "device"


class ResponseTooLarge(RelayError):
    """The device's answer is longer, or more deeply nested, than a frame may be."""

    code = "response_too_large"
    http_status = 502
    layer = "device"


class ResponseInvalid(RelayError):
    """The device answered with something that is no answer."""

    code = "response_invalid"
    http_status = 502
    layer = "device"
