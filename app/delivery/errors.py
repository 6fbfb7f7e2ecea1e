"""Why a message cannot be kept or taken back."""

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
    """There is no such message, or it is not yours to see."""

    code = "message_unknown"
    http_status = 404


class MessageTooBig(RelayError):
    """The text is longer than a message may be."""

    code = "message_too_big"
    http_status = 413


class MailboxFull(RelayError):
    """More waits for this device than may; it has to come back first."""

    code = "mailbox_full"
    http_status = 507
    retryable = True
    layer = "device"


class QuotaExceeded(RelayError):
    """This sender has sent more than it may in this time."""

    code = "quota_exceeded"
    http_status = 429
    retryable = True
