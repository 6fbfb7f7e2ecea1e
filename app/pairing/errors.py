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
