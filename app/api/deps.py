"""Who calls: the operator, the agent's link, a paired device, or (where the operator allows it) a tool on this host."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.types import Scope

from app.api.edge import LOOPBACK, client, header_values, names_us
from app.api.errors import BearerRequired, DeviceRequired, HostRequired, OperatorRequired
from app.bootstrap import Relay
from app.delivery.messages import LINK, OPERATOR
from app.delivery.peer import granted
from app.errors import GrantMissing
from app.sessions.errors import SessionRefused
from app.sessions.service import Principal
from app.settings import ServerSettings

_FORWARDING = {
    b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"true-client-ip", b"fastly-client-ip",
    b"x-original-host", b"x-original-url",
}  # fmt: skip
_NEVER_A_TOOL = (b"x-forwarded", b"sec-fetch-", b"tailscale-", b"x-envoy-", b"cf-")


@dataclass(frozen=True, slots=True)
class Caller:
    """`device` None: the operator, or the link."""

    device: Principal | None
    is_link: bool = False

    @property
    def actor(self) -> str:
        """As the audit names it."""
        return self.device.prefix if self.device else "link" if self.is_link else "operator"

    @property
    def sender(self) -> str:
        """As a message names it."""
        return self.device.device_id if self.device else LINK if self.is_link else OPERATOR


def relay(connection: HTTPConnection) -> Relay:
    found: Relay = connection.app.state.relay
    return found


async def _relay(connection: HTTPConnection) -> Relay:
    """The framework sends plain functions to a thread."""
    return relay(connection)


def bearer(connection: HTTPConnection) -> str | None:
    return _token(connection.headers.getlist("authorization"))


def _token(values: list[str]) -> str | None:
    scheme, _, token = (values or [""])[0].partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def caller_with(grant: str, here: Relay, scope: Scope) -> Caller:
    """The operator, the link, or a device with that grant. Raises BearerRequired, GrantMissing, SessionRefused,
    RateLimited.
    """
    token = _token(header_values(scope, b"authorization"))
    if token is None:
        raise BearerRequired()
    if (found := _host(here, token)) is not None:
        return found
    device = await here.sessions.verify_from(token, client(here, scope)[0])
    if not granted(device.grants, grant, here.clock.now()):
        raise GrantMissing(f"{grant} is not granted to this device, or the grant has expired")
    return Caller(device)


async def device_or_host(connection: HTTPConnection) -> Caller:
    """The operator, the link, or any device. Raises BearerRequired, SessionRefused, RateLimited."""
    token, here = bearer(connection), relay(connection)
    if token is None:
        raise BearerRequired()
    return _host(here, token) or Caller(await here.sessions.verify_from(token, client(here, connection.scope)[0]))


async def with_chat(connection: HTTPConnection) -> Caller:
    return await caller_with("chat", relay(connection), connection.scope)


async def with_chat_or_host_tool(connection: HTTPConnection) -> Caller:
    """For the routes that hermes-relay has for its host and for devices."""
    return _host_tool(connection) or await with_chat(connection)


async def with_bridge_or_host_tool(connection: HTTPConnection) -> Caller:
    return _host_tool(connection) or await caller_with("bridge", relay(connection), connection.scope)


async def with_notifications_or_host_tool(connection: HTTPConnection) -> Caller:
    return _host_tool(connection) or await caller_with("notifications", relay(connection), connection.scope)


async def host_or_host_tool(connection: HTTPConnection) -> Caller:
    """The operator or the link. Raises HostRequired, RateLimited."""
    return _host_tool(connection) or await host(relay(connection), connection.scope)


async def host(here: Relay, scope: Scope) -> Caller:
    """The operator or the link, with its token and nothing else. Raises HostRequired, RateLimited."""
    token = _token(header_values(scope, b"authorization"))
    if token is not None and (found := _host(here, token)) is not None:
        return found
    await _count_guess(here, scope, token)
    raise HostRequired()


def _host(here: Relay, token: str) -> Caller | None:
    if here.operator.matches(token):
        return Caller(None)
    return Caller(None, is_link=True) if here.link.matches(token) else None


def _host_tool(connection: HTTPConnection) -> Caller | None:
    bare = "authorization" not in connection.headers
    return Caller(None) if bare and is_host_tool(relay(connection).settings.server, connection.scope) else None


async def _count_guess(here: Relay, scope: Scope, token: str | None) -> None:
    """A device's token is the wrong one here, or the link's, but no guess: only what matches nothing counts."""
    if token is not None and _host(here, token) is None:
        with suppress(SessionRefused):
            await here.sessions.verify_from(token, client(here, scope)[0])


async def operator(connection: HTTPConnection) -> Caller:
    """The operator token and nothing else. Raises OperatorRequired, RateLimited."""
    token, here = bearer(connection), relay(connection)
    if token is not None and here.operator.matches(token):
        return Caller(None)
    await _count_guess(here, connection.scope, token)
    raise OperatorRequired()


async def operator_or_host_tool(connection: HTTPConnection) -> Caller:
    """For the routes that hermes-relay keeps for its own host."""
    return _host_tool(connection) or await operator(connection)


async def device(connection: HTTPConnection) -> Principal:
    """A session token. Raises BearerRequired, DeviceRequired, SessionRefused, RateLimited."""
    token, here = bearer(connection), relay(connection)
    if token is None:
        raise BearerRequired()
    if _host(here, token) is not None:
        raise DeviceRequired()
    return await here.sessions.verify_from(token, client(here, connection.scope)[0])


async def device_with_chat(here: Relay, scope: Scope) -> Principal:
    """A session token, or an API token, of a device that may chat.

    Raises BearerRequired, DeviceRequired, GrantMissing, SessionRefused, RateLimited.
    """
    token = _token(header_values(scope, b"authorization"))
    if token is None:
        raise BearerRequired()
    if "." not in token and _host(here, token) is not None:  # session tokens have dots, those of the host none
        raise DeviceRequired()
    found = await here.sessions.verify_for_api(token, client(here, scope)[0])
    if not granted(found.grants, "chat", here.clock.now()):
        raise GrantMissing("chat is not granted to this device, or the grant has expired")
    return found


async def device_or_operator(connection: HTTPConnection) -> Caller:
    token = bearer(connection)
    if token is not None and relay(connection).operator.matches(token):
        return Caller(None)
    return Caller(await device(connection))


async def device_or_host_tool(connection: HTTPConnection) -> Caller:
    """A device or the operator, and the tools that hermes-relay lets in without a token."""
    return _host_tool(connection) or await device_or_operator(connection)


def is_host_tool(settings: ServerSettings, scope: Scope) -> bool:
    """TALARIA_TRUST_LOOPBACK=1, and no sign at all of a browser, a proxy or a tunnel between the caller and us."""
    peer = scope["client"][0] if scope.get("client") else None
    names = {name for name, _ in scope["headers"]}
    hosts, types = header_values(scope, b"host"), header_values(scope, b"content-type")
    has_body = b"transfer-encoding" in names or header_values(scope, b"content-length") not in ([], ["0"])
    is_json = len(types) == 1 and types[0].partition(";")[0].strip().lower() == "application/json"
    return (
        settings.trust_loopback
        and peer in ("127.0.0.1", "::1")
        and len(hosts) == 1
        and names_us(hosts[0], frozenset(LOOPBACK))
        and (is_json or not has_body)
        and b"origin" not in names
        and not names & _FORWARDING
        and not any(name.startswith(_NEVER_A_TOOL) for name in names)
    )


OpenRelay = Annotated[Relay, Depends(_relay)]
Operator = Annotated[Caller, Depends(operator)]
OperatorOrHostTool = Annotated[Caller, Depends(operator_or_host_tool)]
Device = Annotated[Principal, Depends(device)]
DeviceOrHost = Annotated[Caller, Depends(device_or_host)]
WithChat = Annotated[Caller, Depends(with_chat)]
WithChatOrHostTool = Annotated[Caller, Depends(with_chat_or_host_tool)]
WithBridgeOrHostTool = Annotated[Caller, Depends(with_bridge_or_host_tool)]
WithNotificationsOrHostTool = Annotated[Caller, Depends(with_notifications_or_host_tool)]
HostOrHostTool = Annotated[Caller, Depends(host_or_host_tool)]
DeviceOrHostTool = Annotated[Caller, Depends(device_or_host_tool)]
