"""Why the agent link does not take a plugin, or a frame of it."""

from __future__ import annotations

from app.errors import RelayError
from app.hermes.errors import UpstreamUnreachable
from app.wire import close


class LinkVersion(RelayError):
    """The plugin in Hermes speaks another version of the link: run `talaria hermes-plugin install` again."""

    code = "link_version"
    http_status = 400
    close_code = close.OTHER_VERSION


class LinkTokenRefused(RelayError):
    """This needs the link token of the relay's data directory, as a bearer: `talaria token link` prints it."""

    code = "link_token_refused"
    http_status = 401
    close_code = close.CREDENTIAL_REFUSED


class GatewayAway(UpstreamUnreachable):
    """Hermes' messaging gateway is not connected: start it, with Talaria's plugin in it."""

    code = "gateway_away"


class GatewayOff(UpstreamUnreachable):
    """Hermes' messaging gateway never connected: `talaria hermes-plugin install` puts Talaria's plugin into it."""

    code = "gateway_off"
    retryable = False
