"""What can go wrong, said once.

An error class is the whole truth about a failure: its stable code, the layer that failed, the HTTP
status, whether the same request may succeed later, and (where a socket must end) the close code.
The message is for people and is sent to clients; context for the log goes into `detail`, never out.
"""

from __future__ import annotations

from typing import Literal

Layer = Literal["relay", "upstream", "agent", "device"]


class RelayError(Exception):
    """The relay failed; its log says why."""  # what a client reads: every subclass says its own

    code = "internal_error"
    layer: Layer = "relay"
    http_status = 500
    retryable = False
    close_code: int | None = None

    def __init__(self, message: str = "", *, detail: str = "", retry_after: int | None = None) -> None:
        super().__init__(message or (self.__doc__ or self.code).strip().splitlines()[0])
        self.detail = detail
        self.retry_after = retry_after  # whole seconds

    @property
    def message(self) -> str:
        return str(self.args[0])


class FrameInvalid(RelayError):
    """This is not a frame of the protocol."""

    code = "frame_invalid"
    http_status = 400
    ref: str | None = None  # the frame's id, where it could be read


class FrameOutOfTurn(RelayError):
    """This frame is not expected now."""

    code = "frame_out_of_turn"
    http_status = 400


class PayloadInvalid(RelayError):
    """The payload lacks a field or a field has the wrong type."""

    code = "payload_invalid"
    http_status = 400


class UnknownChannel(RelayError):
    """There is no such channel."""

    code = "unknown_channel"
    http_status = 404


class UnknownType(RelayError):
    """The channel has no such message type."""

    code = "unknown_type"
    http_status = 404


class NotFound(RelayError):
    """There is no such thing."""

    code = "not_found"
    http_status = 404


class NotSupported(RelayError):
    """This version, of the relay or of the app on the device, cannot do that."""

    code = "not_supported"
    http_status = 400


class GrantMissing(RelayError):
    """This device was not granted that, or the grant has expired."""

    code = "grant_missing"
    http_status = 403


class RateLimited(RelayError):
    """Too many attempts; wait and try again."""

    code = "rate_limited"
    http_status = 429
    retryable = True
    close_code = 4429


class Overloaded(RelayError):
    """The relay has more to do than it may queue; try again shortly."""

    code = "overloaded"
    http_status = 503
    retryable = True


class StorageFull(RelayError):
    """The relay's disk is full: nothing new can be stored until there is space."""

    code = "storage_full"
    http_status = 507
    retryable = True


class StorageFailed(RelayError):
    """The relay's database failed."""

    code = "storage_failed"
    http_status = 500
    retryable = True


class Draining(RelayError):
    """The relay is restarting; come back in a moment."""

    code = "draining"
    http_status = 503
    retryable = True
    close_code = 1012


class IdReused(RelayError):
    """This key was used before with another payload."""

    code = "id_reused"
    http_status = 409


class OutcomeUncertain(RelayError):
    """The relay was cut off while it did this: whether it happened is not known, and it is not done again."""

    code = "uncertain"
    http_status = 409


class Misconfigured(RelayError):
    """A setting, or a file in the data directory, cannot be used as it is."""

    code = "misconfigured"
