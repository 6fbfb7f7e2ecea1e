"""Offers over HTTP: the operator makes them, a phone without a socket redeems one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from app.api import examples
from app.api.bodies import PeerRoute, present, read_model, read_object
from app.api.deps import OpenRelay, Operator, OperatorOrHostTool
from app.api.edge import client
from app.api.errors import BodyInvalid, OperatorRequired
from app.api.openapi import answers, takes
from app.api.scan import Scan, endpoints_of
from app.pairing.errors import ConfirmationPending, PairingCodeInvalid, PairingCodeRejected
from app.pairing.link import pair_link
from app.pairing.offers import Terms
from app.sessions import grants as rules
from app.wire.payloads import Auth

MAX_NAME = 120  # characters, as on the wire
MAX_WAIT_S = 30

host = APIRouter(tags=["pairing"], route_class=PeerRoute)
router = APIRouter(tags=["pairing"])


@host.post("/pairing/mint", openapi_extra=takes(examples.MINT), responses=answers(examples.MINTED))
async def mint(request: Request, relay: OpenRelay, caller: OperatorOrHostTool) -> dict[str, Any]:
    """`for`: hermes-relay (default), whose clients scan `qr_payload`, or web.

    `grants` as a list: exactly these, each as long as by default. As an object (seconds, 0 = never): the defaults
    with these changes. `ttl_seconds` 0 = never ends.
    """
    body = await read_object(request)
    purpose = body.get("for") or "hermes-relay"
    if purpose not in ("web", "hermes-relay"):
        raise BodyInvalid("'for' must be web or hermes-relay")
    server = relay.settings.server
    scan = Scan(body, server) if purpose == "hermes-relay" else None
    terms = _terms(body, strict=scan is None, lists=True)
    if scan is None:
        offer = await relay.pairing.mint(terms.name, terms.grants, ttl=terms.ttl, hint=terms.hint, actor=caller.actor)
    else:
        offer = await relay.pairing.mint_for_peer(terms, api_token=scan.wants_api_token, actor=caller.actor)
    own = relay.identity.fingerprint
    return {
        "ok": True, "code": offer.code, **(scan.shown(offer, relay.qr_secret, own) if scan else {}),
        "expires_at": int(offer.expires_at), "offer_id": offer.offer_id,
        "web_url": pair_link(server.public_url, server.port, offer.code, own),
        "fingerprint": own, "public": server.public_url is not None,
        "name": offer.name, "ttl_seconds": offer.ttl, "grants": dict(offer.grants),
        **({"needs_approval": True} if offer.needs_approval else {}),
        **({"confirms": True} if relay.settings.sessions.pairing_confirm else {}),
    }  # fmt: skip


@host.post("/pairing/register", openapi_extra=takes(examples.REGISTER), responses=answers(examples.REGISTERED))
async def register(request: Request, relay: OpenRelay, caller: OperatorOrHostTool) -> dict[str, Any]:
    """For tools that make codes themselves. Grants that this relay does not have are passed over."""
    code, endpoints, terms = await _registration(request)
    with _peer_words():
        offer = await relay.pairing.register(
            code, terms.name, terms.grants, ttl=terms.ttl, hint=terms.hint, actor=caller.actor
        )  # fmt: skip
    return {"ok": True, "code": offer.code} | ({"endpoints": endpoints} if endpoints else {})


@host.post("/pairing/approve", openapi_extra=takes(examples.REGISTER), responses=answers(examples.REGISTERED))
async def approve(request: Request, relay: OpenRelay, caller: OperatorOrHostTool) -> dict[str, Any]:
    """Say yes to a code: one that was minted or registered while confirmation is on, or a new one."""
    if relay.settings.sessions.pairing_confirm and "authorization" not in request.headers:
        raise OperatorRequired()  # a tool that may mint must not be able to approve what it minted
    code, endpoints, terms = await _registration(request)
    with _peer_words():
        offer = await relay.pairing.approve(code, terms, actor=caller.actor)
    return {"ok": True, "code": offer.code} | ({"endpoints": endpoints} if endpoints else {})


async def _registration(request: Request) -> tuple[str, list[Any] | None, Terms]:
    body = await read_object(request)
    code = body.get("code")
    if not isinstance(code, str) or not code:
        raise BodyInvalid("missing 'code' field")
    return code, endpoints_of(body), _terms(body, strict=False, lists=False)


@contextmanager
def _peer_words() -> Iterator[None]:
    try:
        yield
    except PairingCodeInvalid:
        # hermes-relay's words; this relay takes up to 16 characters.
        raise PairingCodeInvalid("invalid code format (must be 6 chars from A-Z / 0-9)") from None


@router.get("/pairing/pending", responses=answers(examples.PENDING))
async def pending(relay: OpenRelay, _: Operator) -> dict[str, Any]:
    """Devices that redeemed a code and wait for the operator: the digits are on their screens too."""
    return {
        "pending": [
            {
                "confirm": offer.confirm, "offer_id": offer.offer_id, "offer_name": offer.name,
                "device": offer.claimant or {}, "expires_at": int(offer.confirm_until or 0),
            }
            for offer in await relay.pairing.pending()
        ]
    }  # fmt: skip


@router.post("/pairing/confirm", openapi_extra=takes(examples.CONFIRM), responses=answers(examples.CONFIRMED))
async def confirm(request: Request, relay: OpenRelay, caller: Operator) -> dict[str, Any]:
    """`{confirm: "123456", allow: true | false}`. A no voids the code."""
    body = await read_object(request)
    digits, allow = body.get("confirm"), body.get("allow")
    if not isinstance(digits, str) or not isinstance(allow, bool):
        raise BodyInvalid("needs 'confirm' (six digits as text) and 'allow' (true or false)")
    offer_id = await relay.pairing.confirm(digits.strip(), allow=allow, actor=caller.actor)
    return {"ok": True, "allowed": allow, "offer_id": offer_id}


@router.post(
    "/pairing/redeem",
    openapi_extra=takes(Auth, examples.REDEEM),
    response_model=None,
    responses=answers(examples.WELCOME) | answers(examples.TO_CONFIRM, 202, "The operator has to say yes"),
)
async def redeem(request: Request, relay: OpenRelay) -> dict[str, Any] | JSONResponse:
    """What `system/auth` with a pairing code does, for clients without a socket: the answer is `auth.ok`'s payload.

    202 `{confirm, expires_at}`: the operator has to say yes. Ask again with the same body.
    """
    auth = await read_model(request, Auth)
    if not auth.pairing_code:
        raise PairingCodeRejected()
    address, secure = client(relay, request.scope)
    try:
        return (await relay.authenticator.authenticate(auth, address, secure=secure)).ok
    except ConfirmationPending as exc:
        return JSONResponse({"confirm": exc.confirm, "expires_at": int(exc.expires_at)}, exc.http_status)


@router.get("/pairing/offers/{offer_id}", responses=answers(examples.OFFER))
async def offer_status(
    offer_id: str,
    relay: OpenRelay,
    _: Operator,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0,
    seen: str = "waiting",
) -> dict[str, Any]:
    """`waiting`, `approving`, `confirming`, `redeemed` or `expired`; with `wait`, once it is no longer what was
    `seen`, or after so many seconds.
    """
    status = await relay.pairing.wait(offer_id, wait, seen)
    return {
        "state": status.state, "expires_at": int(status.expires_at),
        "device_id": status.device_id, "device_name": status.device_name, "confirm": status.confirm,
    }  # fmt: skip


def _terms(body: Mapping[str, Any], *, strict: bool, lists: bool) -> Terms:
    """`strict`: unknown grants are refused. `lists`: they may be names alone."""
    listed = lists and isinstance(body.get("grants"), list)
    grants = _listed_grants(body["grants"]) if listed else _grants(body, strict=strict)
    return Terms(_name(body), grants, _ttl(body), _hint(body))


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
