"""Sessions over HTTP: who am I, who is paired, less for one, none for another."""

from __future__ import annotations

from typing import Any, ClassVar

from fastapi import APIRouter, Request

from app.api import examples
from app.api.bodies import PeerRoute, present, read_model, read_object
from app.api.deps import Caller, Device, DeviceOrHostTool, OpenRelay, Operator
from app.api.edge import client
from app.api.errors import BearerRequired, BodyInvalid
from app.api.openapi import answers, takes
from app.errors import NotFound
from app.sessions import grants as rules
from app.sessions.changes import Change
from app.sessions.store import Session
from app.wire.payloads import SessionRenew

MAX_NAME = 120


class SessionsRoute(PeerRoute):
    texts: ClassVar[frozenset[int]] = frozenset({401, 403, 404, 409})


peer = APIRouter(tags=["sessions"], route_class=SessionsRoute)
router = APIRouter(tags=["sessions"])


@router.get("/session", responses=answers(examples.SESSION))
async def whoami(relay: OpenRelay, device: Device) -> dict[str, Any]:
    """The caller's own session: `grants` are name → Unix seconds, null = never ends."""
    found = await relay.sessions.list()
    mine = next((session for session in found if session.session_id == device.session_id), None)
    if mine is None:
        raise NotFound("this session has just ended")
    return _view(mine, Caller(device))


@router.post("/session/renew", openapi_extra=takes(SessionRenew, examples.RENEW), responses=answers(examples.RENEWED))
async def renew(request: Request, relay: OpenRelay) -> dict[str, Any]:
    """By a refresh token. The one before stays good until the new one, or what came with it, is seen."""
    asked = await read_model(request, SessionRenew)
    return (await relay.renewals.renew(asked.refresh_token, client(relay, request.scope)[0])).said()


@router.post("/session/ticket", responses=answers(examples.TICKET))
async def ticket(request: Request, relay: OpenRelay, device: Device) -> dict[str, Any]:
    """Opens one socket, for a page of the same origin, within half a minute: `session_token` of its `system/auth`."""
    made, expires_at = await relay.tickets.issue(device, request.headers.get("origin"))
    return {"ticket": made, "expires_at": expires_at}


@router.post("/keys/rotate", responses=answers(examples.ROTATED))
async def rotate_keys(relay: OpenRelay, caller: Operator) -> dict[str, Any]:
    """A new key signs session tokens; the others verify on. `gone` are those that no live session needs any more."""
    kid, gone = await relay.renewals.rotate_keys(caller.actor)
    return {"ok": True, "kid": kid, "gone": gone}


@router.get("/devices", responses=answers(examples.DEVICES))
async def devices(relay: OpenRelay, _: Operator) -> dict[str, Any]:
    """Every device that was ever paired, with its sessions and how push to it stands. `is_over`: a session that has
    ended, and that the device begins again by its refresh token unless it is revoked.
    """
    found = await relay.sessions.devices()
    push = await relay.push.healths([device.device_id for device, _ in found])
    now = relay.clock.now()
    return {
        "devices": [
            {
                "device_id": device.device_id, "name": device.name, "about": device.about,
                "created_at": device.created_at, "last_seen": device.last_seen_at,
                "online": bool(relay.hub.of_device(device.device_id)), "push": push[device.device_id],
                "sessions": [
                    {
                        "token_prefix": session.prefix, "created_at": session.created_at,
                        "last_seen": session.last_seen_at, "expires_at": session.expires_at, "grants": session.grants,
                        "is_over": session.is_over(now),
                    }
                    for session in sessions
                ],
            }
            for device, sessions in found
        ]
    }  # fmt: skip


@peer.get("/sessions", responses=answers(examples.SESSIONS))
async def list_sessions(relay: OpenRelay, caller: DeviceOrHostTool) -> dict[str, Any]:
    """Live sessions, the most recently seen first."""
    return {"sessions": [_view(session, caller) for session in await relay.sessions.list()]}


@peer.patch("/sessions/{prefix}", openapi_extra=takes(examples.CHANGE), responses=answers(examples.CHANGED))
async def change_session(prefix: str, request: Request, relay: OpenRelay, caller: DeviceOrHostTool) -> dict[str, Any]:
    """A device may lessen its own: `ttl_seconds`, or `grants` as seconds from now (0 = never, so no change; 1 ends it).
    The operator may extend, and set `name`.
    """
    if caller.device is None and "authorization" not in request.headers:
        raise BearerRequired()  # hermes-relay lets its host tools list and revoke, not change
    body = await read_object(request)
    change = _change(body, may_rename=caller.device is None)
    if caller.device is None:
        session = await relay.sessions.alter(prefix, change, actor=caller.actor)
    else:
        session = await relay.sessions.reduce(prefix, change, by=caller.device)
    return {
        "ok": True, "token_prefix": session.prefix, "expires_at": session.expires_at, "grants": session.grants,
    }  # fmt: skip


@peer.delete("/sessions/{prefix}", responses=answers(examples.REVOKED))
async def revoke_session(prefix: str, relay: OpenRelay, caller: DeviceOrHostTool) -> dict[str, Any]:
    """Its sockets close at once. A device may revoke any: whoever finds a lost phone paired is one of the owner's."""
    revoked = await relay.sessions.revoke(prefix, actor=caller.actor)
    is_self = caller.device is not None and caller.device.session_id == revoked
    return {"ok": True, "revoked": revoked[:8], "revoked_self": is_self}


def _view(session: Session, caller: Caller) -> dict[str, Any]:
    about = session.about
    return {
        "token_prefix": session.prefix, "device_name": session.device_name, "device_id": session.device_id,
        "created_at": session.created_at, "first_seen": session.created_at, "last_seen": session.last_seen_at,
        "expires_at": session.expires_at, "grants": session.grants,
        "transport_hint": session.transport_hint or "unknown",
        "client_surface": about.get("surface", "unknown"), "device_form_factor": about.get("form_factor", "unknown"),
        "device_model": about.get("model", "unknown"), "device_platform": about.get("platform", "unknown"),
        "is_current": caller.device is not None and caller.device.session_id == session.session_id,
    }  # fmt: skip


def _change(body: dict[str, Any], *, may_rename: bool) -> Change:
    names = [name for name in ("ttl_seconds", "grants", *(["name"] if may_rename else [])) if present(body, name)]
    if not names:
        raise BodyInvalid("must provide at least one of 'ttl_seconds' or 'grants'")
    ttl = _ttl(body["ttl_seconds"]) if "ttl_seconds" in names else None
    grants = _grants(body["grants"]) if "grants" in names else None
    name = _name(body["name"]) if "name" in names else None
    return Change(ttl=ttl, ttl_given="ttl_seconds" in names, grants=grants, name=name)


def _ttl(value: object) -> int | None:
    if type(value) is not int or not 0 <= value <= rules.MAX_SECONDS:
        raise BodyInvalid("'ttl_seconds' must be a non-negative integer (0 = never expire)")
    return value or None


def _grants(value: object) -> rules.Seconds:
    try:
        if not isinstance(value, dict):
            raise ValueError
        return {name: rules.parse_seconds(seconds) for name, seconds in value.items()}
    except ValueError:
        raise BodyInvalid(
            "'grants' must map string channel names to non-negative numeric seconds-from-now values"
        ) from None


def _name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value.strip()) <= MAX_NAME:
        raise BodyInvalid(f"'name' must be a text of at most {MAX_NAME} characters")
    return value.strip()


router.include_router(peer)
