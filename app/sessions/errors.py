"""Why a credential was refused."""

from __future__ import annotations

from app.errors import RelayError
from app.wire import close


class SessionRefused(RelayError):
    """This session does not open anything."""

    code = "session_refused"
    http_status = 401
    close_code = close.CREDENTIAL_REFUSED


class SessionUnknown(SessionRefused):
    """There is no such session; pair again."""

    code = "session_unknown"


class TokenRejected(SessionUnknown):
    """This is not a token of this relay; pair again."""

    # The same code outside: a client has the same thing to do. Apart inside, because only this one is a guess.


class ApiTokenMisplaced(SessionRefused):
    """This token opens the Hermes API only; use the session token here."""

    code = "api_token_misplaced"
    http_status = 403


class RefreshReused(SessionRefused):
    """This refresh token was used before, so somebody else may have it: the session has ended; pair again."""

    code = "refresh_reused"


class TicketElsewhere(SessionRefused):
    """This ticket was made for a page of another origin."""

    code = "ticket_elsewhere"


class SessionExpired(SessionRefused):
    """The session has ended; pair again."""

    code = "session_expired"


class SessionRevoked(SessionRefused):
    """The session was revoked; pair again."""

    code = "session_revoked"


class SessionPrefixAmbiguous(RelayError):
    """More than one session begins like this."""

    code = "session_prefix_ambiguous"
    http_status = 409


class NotYours(RelayError):
    """A device may change its own session only."""

    code = "not_yours"
    http_status = 403


class MoreThanGranted(RelayError):
    """Only the operator may extend a session."""

    code = "more_than_granted"
    http_status = 403


class GrantUnknown(RelayError):
    """There is no such grant."""

    code = "grant_unknown"
    http_status = 400


class ChallengeInvalid(RelayError):
    """A challenge is 16 to 64 random bytes, as base64url."""

    code = "challenge_invalid"
    http_status = 400
