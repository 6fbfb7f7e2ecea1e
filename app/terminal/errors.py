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
