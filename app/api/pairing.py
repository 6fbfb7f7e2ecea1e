"""Offers over HTTP: the operator makes them, a phone without a socket redeems one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request

from app.api.bodies import PeerRoute, described, present, read_model, read_object
from app.api.deps import OpenRelay, Operator, OperatorOrHostTool
from app.api.edge import client
from app.api.errors import BodyInvalid, NotSupported
from app.pairing.errors import PairingCodeInvalid, PairingCodeRejected
from app.pairing.link import pair_link
from app.sessions import grants as rules
from app.wire.payloads import Auth

MAX_NAME = 120  # characters, as on the wire
MAX_WAIT_S = 30

host = APIRouter(tags=["pairing"], route_class=PeerRoute)
router = APIRouter(tags=["pairing"])


@host.post("/pairing/mint")
async def mint(request: Request, relay: OpenRelay, caller: OperatorOrHostTool) -> dict[str, Any]:
    """`grants` as a list: exactly these, each as long as by default. As an object (seconds, 0 = never): the defaults
    with these changes. `ttl_seconds` 0 = never ends.
    """
    body = await read_object(request)
    purpose = body.get("for") or "web"
    if purpose == "hermes-relay":
        raise NotSupported("pairing the Hermes-Relay app by QR is not supported by this version; use 'for': 'web'")
    if purpose != "web":
        raise BodyInvalid("'for' must be web or hermes-relay")
    listed = isinstance(body.get("grants"), list)
    offer = await relay.pairing.mint(
        _name(body),
        _listed_grants(body["grants"]) if listed else _grants(body, strict=True),
        ttl=_ttl(body), hint=_hint(body), actor=caller.actor,
    )  # fmt: skip
    server = relay.settings.server
    return {
        "ok": True, "code": offer.code, "offer_id": offer.offer_id, "expires_at": int(offer.expires_at),
        "web_url": pair_link(server.public_url, server.port, offer.code, relay.identity.fingerprint),
        "fingerprint": relay.identity.fingerprint, "public": server.public_url is not None,
        "name": offer.name, "ttl_seconds": offer.ttl, "grants": dict(offer.grants),
    }  # fmt: skip


@host.post("/pairing/register")
async def register(request: Request, relay: OpenRelay, caller: OperatorOrHostTool) -> dict[str, Any]:
    """For tools that make codes themselves. Grants that this relay does not have are passed over."""
    body = await read_object(request)
    code = body.get("code")
    if not isinstance(code, str) or not code:
        raise BodyInvalid("missing 'code' field")
    endpoints = body.get("endpoints")
    if present(body, "endpoints") and not isinstance(endpoints, list):
        raise BodyInvalid("endpoints must be an array")
    try:
        offer = await relay.pairing.register(
            code, _name(body), _grants(body, strict=False), ttl=_ttl(body), hint=_hint(body), actor=caller.actor
        )
    except PairingCodeInvalid:
        # hermes-relay's words; this relay takes up to 16 characters.
        raise PairingCodeInvalid("invalid code format (must be 6 chars from A-Z / 0-9)") from None
    return {"ok": True, "code": offer.code} | ({"endpoints": endpoints} if endpoints else {})


@router.post("/pairing/redeem", openapi_extra=described(Auth))
async def redeem(request: Request, relay: OpenRelay) -> dict[str, Any]:
    """What `system/auth` with a pairing code does, for clients without a socket: the answer is `auth.ok`'s payload."""
    auth = await read_model(request, Auth)
    if not auth.pairing_code:
        raise PairingCodeRejected()
    address, secure = client(relay, request.scope)
    return (await relay.authenticator.authenticate(auth, address, None, secure=secure)).ok


@router.get("/pairing/offers/{offer_id}")
async def offer_status(
    offer_id: str, relay: OpenRelay, _: Operator, wait: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0
) -> dict[str, Any]:
    """`waiting`, `redeemed` or `expired`; with `wait`, at the latest after so many seconds, at once when redeemed."""
    status = await relay.pairing.wait(offer_id, wait)
    return {
        "state": status.state, "expires_at": int(status.expires_at),
        "device_id": status.device_id, "device_name": status.device_name,
    }  # fmt: skip


def _name(body: Mapping[str, Any]) -> str | None:
    name = body.get("name")
    if name is not None and (not isinstance(name, str) or not 0 < len(name.strip()) <= MAX_NAME):
        raise BodyInvalid(f"name must be a text of at most {MAX_NAME} characters")
    return name and name.strip()


def _ttl(body: Mapping[str, Any]) -> int | Literal["default"] | None:
    return _seconds("ttl_seconds", body["ttl_seconds"], " (0 = never)") if present(body, "ttl_seconds") else "default"


def _hint(body: Mapping[str, Any]) -> str | None:
    hint = body.get("transport_hint")
    if hint not in (None, "wss", "ws", "unknown"):
        raise BodyInvalid("transport_hint must be wss/ws/unknown")
    return hint


def _grants(body: Mapping[str, Any], *, strict: bool) -> rules.Seconds | None:
    if not present(body, "grants"):
        return None
    given = body["grants"]
    if not isinstance(given, dict):
        raise BodyInvalid("grants must be an object")
    asked = {name: _seconds(f"grants[{name!r}]", value) for name, value in given.items()}
    if strict:
        rules.check(asked)
    return {**rules.DEFAULT, **{name: seconds for name, seconds in asked.items() if name in rules.KNOWN}}


def _listed_grants(names: list[Any]) -> rules.Seconds:
    if not names or not all(isinstance(name, str) for name in names):
        raise BodyInvalid("grants must be names, at least one")
    return {name: rules.DEFAULT.get(name) for name in rules.check(dict.fromkeys(names))}


def _seconds(field: str, value: object, hint: str = "") -> int | None:
    try:
        return rules.parse_seconds(value)
    except ValueError as exc:
        reason = str(exc).removeprefix("it ")
        raise BodyInvalid(f"{field} {reason}{hint if reason.endswith('>= 0') else ''}") from None


router.include_router(host)
