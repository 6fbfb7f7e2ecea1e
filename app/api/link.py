"""The edge of the agent link: `GET /agent/link`, with the link token. Routed before the framework, as `/ws` is."""

from __future__ import annotations

from contextlib import suppress

from app.bootstrap import Relay
from app.errors import RelayError
from app.hermes.link.connection import Socket
from app.hermes.link.errors import LinkTokenRefused
from app.sessions.address import Address
from app.sessions.errors import SessionRefused

PATH = "/agent/link"


async def refusal(relay: Relay, token: str | None, address: Address) -> RelayError | None:
    """Why this caller gets no socket. A token that opens nothing counts as a guess."""
    if token is not None and relay.link.matches(token):
        return None
    if token is not None:
        try:
            with suppress(SessionRefused):
                await relay.sessions.verify_from(token, address)
        except RelayError as exc:
            return exc
    return LinkTokenRefused()


async def serve(relay: Relay, socket: Socket, token: str) -> None:
    await relay.agent_link.serve(socket, lambda: relay.link.matches(token))
