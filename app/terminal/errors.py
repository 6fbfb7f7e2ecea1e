"""Why a terminal cannot be had, or not as asked."""

from __future__ import annotations

from app.errors import RelayError


class TerminalUnavailable(RelayError):
    """The host of the terminals cannot be reached, or refuses to start a shell."""

    code = "terminal_unavailable"
    http_status = 503
    retryable = True


class HostUnavailable(TerminalUnavailable):
    """The host of the terminals cannot be reached over SSH, or refuses: the message says at which step."""

    layer = "upstream"


class TerminalOff(RelayError):
    """This relay has no terminals: TALARIA_TERMINAL_BACKEND is off, or is ssh and TALARIA_SSH_HOST is not set."""

    code = "terminal_off"
    http_status = 404


class TerminalUnknown(RelayError):
    """There is no terminal session of that name."""

    code = "terminal_unknown"
    http_status = 404


class TerminalNotAttached(RelayError):
    """This link is not attached to that session: attach first."""

    code = "terminal_not_attached"
    http_status = 409


class TerminalExists(RelayError):
    """There is a terminal session of that name already."""

    code = "terminal_exists"
    http_status = 409


class TerminalNameInvalid(RelayError):
    """A session's name has 1 to 100 letters, digits, - and _, and begins with a letter or digit."""

    code = "terminal_name_invalid"
    http_status = 400


class TooManyTerminals(RelayError):
    """There are as many terminal sessions as there may be: detach or kill one first."""

    code = "terminal_limit"
    http_status = 429


class TerminalInputFull(RelayError):
    """The shell has not taken what was typed before: none of this input was written, send it again later."""

    code = "terminal_input_full"
    http_status = 429
    retryable = True
