"""Commands to a phone under hermes-relay's names, and what is known of phones.

The routes of the table are answered before the framework, as `POST /messages` is: an agent that looks and taps calls
them in bursts. Refusals look as hermes-relay's do, with our code in the header.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Query, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api import examples
from app.api.bodies import parse_object, read_object
from app.api.deps import OpenRelay, WithBridgeOrHostTool, caller_with
from app.api.edge import header_values
from app.api.errors import BodyInvalid, headers_of
from app.api.messages import read
from app.api.openapi import JSON, LINE, answers, header, refusal_of, refused, sends, takes, with_grant
from app.bootstrap import Relay
from app.bridge.activity import MAX_ENTRIES
from app.bridge.commands import COMMANDS, Command
from app.bridge.service import MAX_TIMEOUT_S, Answer
from app.errors import GrantMissing, RelayError
from app.wire.depth import is_too_deep

MAX_BODY = 1024 * 1024  # bytes: a text to type or to share
MAX_FIELDS = 200  # of a query
SELECTORS = ("device", "device_id", "deviceId")  # name the phone, and are not passed on
ROUTES: Mapping[tuple[str, str], Command] = {(command.method, command.path): command for command in COMMANDS}


def refusal(error: RelayError, beside: Mapping[str, Any] | None = None) -> Response:
    """As hermes-relay says it: a line of text where it is about who asks, else `error`."""
    if isinstance(error, GrantMissing):
        return PlainTextResponse("active bridge grant required", 403, headers_of(error))
    if error.http_status == 401:
        return PlainTextResponse(error.message, 401, headers_of(error))
    return JSONResponse({**(beside or {}), "error": error.message}, error.http_status, headers_of(error))


# the table


class Commands:
    """Pure ASGI: answers the routes of the table, and passes everything else on."""

    def __init__(self, app: ASGIApp, relay: Relay) -> None:
        self._app, self._relay = app, relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        command = ROUTES.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if command is None:
            await self._app(scope, receive, send)
        else:
            await (await answer(self._relay, command, scope, receive))(scope, receive, send)


async def answer(relay: Relay, command: Command, scope: Scope, receive: Receive) -> Response:
    try:
        caller = await caller_with("bridge", relay, scope)
        query, named = _query(scope)
        args: dict[str, Any] = query
        if command.method == "POST":
            args, also = _body(await read(receive, MAX_BODY))
            named = named or also
        server = scope.get("extensions", {}).get("talaria")
        found = await relay.bridge.ask(
            command, args, device=named, caller=caller.actor, timeout_s=_timeout(scope), params=query,
            wanted=lambda: server is None or not server.is_gone,
        )  # fmt: skip
    except RelayError as exc:
        return refusal(exc)
    return Response(found.body, found.status, _said(found), "application/json")


def _said(found: Answer) -> dict[str, str]:
    return {"X-Talaria-Error": "denied"} if found.status == 403 else {}


def _query(scope: Scope) -> tuple[dict[str, str], str | None]:
    """Without the selector, and that. Raises BodyInvalid."""
    if not scope["query_string"]:
        return {}, None
    try:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise BodyInvalid(f"a query has at most {MAX_FIELDS} fields") from None
    return _without_selector(dict(pairs))


def _body(raw: bytes) -> tuple[dict[str, Any], str | None]:
    """Likewise. No body is an empty one."""
    if not raw.strip():
        return {}, None
    body = parse_object(raw)
    if is_too_deep(body, len(raw)):
        raise BodyInvalid("the body is nested too deeply")
    return _without_selector(body)


def _without_selector(said: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    named = None
    for name in SELECTORS:
        value = said.pop(name, None)
        if isinstance(value, str):
            named = named or value.strip()
        elif value is not None:
            raise BodyInvalid(f"'{name}' must be a string")
    return said, named or None


def _timeout(scope: Scope) -> float | None:
    """The X-Talaria-Timeout: seconds. Raises BodyInvalid."""
    said = next(iter(header_values(scope, b"x-talaria-timeout")), None)
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise BodyInvalid(f"X-Talaria-Timeout is a number of seconds, at most {MAX_TIMEOUT_S:g}")
    return seconds


router = APIRouter(tags=["hermes-relay"])
REFUSED = refused({"error": "No phone connected."}, lines=(401, 403))
ANSWERED = (  # a phone may use any status
    sends("What the phone answers", JSON)
    | sends("What the phone answers, or with X-Talaria-Error why it was not asked", JSON, status="default")
    | {status: refusal_of({**LINE, JSON: {"schema": {}}}) for status in (401, 403)}
)
ASKED = (
    {"name": "device", "in": "query", "description": "which phone, by id or alias", "schema": {"type": "string"}},
    header("X-Talaria-Timeout", "seconds", {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S}),
)


def _describe(command: Command) -> None:
    """For `/openapi.json`, and for other methods at the same path."""

    async def ask(request: Request, relay: OpenRelay) -> Response:
        return await answer(relay, command, request.scope, request.receive)

    schema = command.schema()
    extra: dict[str, Any] = {"security": with_grant("bridge"), "parameters": list(ASKED)}
    if command.method == "POST":
        extra["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    else:
        extra["parameters"] += [
            {"name": param.name, "in": "query", "required": param.required, "schema": param.schema()}
            for param in command.params
        ]
    router.add_api_route(
        command.path, ask, methods=[command.method], name=command.name, summary=command.summary, openapi_extra=extra,
        responses=ANSWERED,
    )  # fmt: skip


for _command in COMMANDS:
    _describe(_command)


# what is known of phones


class BridgeRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RelayError as exc:
                return refusal(exc, {"ok": False} if exc.http_status == 400 else None)

        return answer


peer = APIRouter(tags=["hermes-relay"], route_class=BridgeRoute)


@peer.get(
    "/bridge/status",
    responses=answers(examples.PHONE) | answers(examples.NO_PHONE, 503, "There never was one") | REFUSED,
)
async def status(relay: OpenRelay, _: WithBridgeOrHostTool, device: str | None = None) -> Response:
    """Of the phone that is named, or meant where none is, or was heard of last; 503 if there never was one."""
    await relay.bridge.refresh()
    devices = relay.bridge.devices
    latest = devices.latest_first()
    if not latest:
        nothing = {"phone_connected": False, "last_seen_seconds_ago": None, "error": "no phone connected"}
        return JSONResponse(nothing, 503, {"X-Talaria-Error": "device_offline"})
    found = devices.find(device)[0] if device else devices.active or latest[0]
    return JSONResponse(relay.bridge.view(found))


@peer.get("/bridge/devices", responses=answers(examples.PHONES) | REFUSED)
async def devices(relay: OpenRelay, _: WithBridgeOrHostTool) -> dict[str, Any]:
    """All phones that are paired and ever said that they can be asked; who spoke last is first."""
    await relay.bridge.refresh()
    known = relay.bridge.devices
    latest = known.latest_first()
    return {
        "active_device_id": known.active.device_id if known.active else None,
        "most_recent_device_id": latest[0].device_id if latest else None,
        "devices": [relay.bridge.view(device) for device in latest], "count": len(latest),
    }  # fmt: skip


@peer.post("/bridge/select-active", openapi_extra=takes(examples.CHOOSE), responses=answers(examples.CHOSEN) | REFUSED)
async def select_active(request: Request, relay: OpenRelay, _: WithBridgeOrHostTool) -> dict[str, Any]:
    """`{device}`: from now on that phone is meant where none is named."""
    named = _without_selector(await read_object(request))[1]
    if named is None:
        raise BodyInvalid("missing device or device_id")
    device, alias = await relay.bridge.choose(named)
    return {
        "ok": True, "active_device_id": device.device_id, "device_id": device.device_id, "device_name": device.name,
        "alias_used": alias, "aliases": device.aliases,
    }  # fmt: skip


@peer.get("/bridge/activity", responses=answers(examples.ACTIVITY) | REFUSED)
async def activity(
    relay: OpenRelay, _: WithBridgeOrHostTool, limit: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = 100
) -> dict[str, Any]:
    """What phones were asked lately, newest first, without what is secret."""
    return {"activity": relay.bridge.activity.latest(limit)}


router.include_router(peer)
