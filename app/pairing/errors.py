"""Why a code opens nothing."""

from __future__ import annotations

from app.errors import RelayError
from app.wire import close


class PairingCodeRejected(RelayError):
    """This pairing code is not valid: unknown, expired and already used look alike."""

    code = "pairing_code_rejected"
    http_status = 401
    close_code = close.CREDENTIAL_REFUSED


class PairingCodeInvalid(RelayError):
    """A pairing code is 6 to 16 characters from A-Z and 0-9."""

    code = "pairing_code_invalid"
    http_status = 400


class PairingDenied(PairingCodeRejected):
    """The operator did not allow this device, or did not answer in time; make a new pairing code."""

    code = "pairing_denied"


class ConfirmationPending(RelayError):
    """The operator has to confirm this device: compare the six digits on both sides."""

    code = "confirmation_pending"
    http_status = 202
    retryable = True

    def __init__(self, offer_id: str = "", confirm: str = "", expires_at: float = 0.0) -> None:
        super().__init__()
        self.offer_id, self.confirm, self.expires_at = offer_id, confirm, expires_at


class ConfirmationUnknown(RelayError):
    """No device waits with these six digits: it was answered, or its two minutes are over."""

    code = "confirmation_unknown"
    http_status = 404
