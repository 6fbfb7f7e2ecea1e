"""Messages to the owner's devices: send, follow, take back.

`POST /messages` is answered before the framework, as sockets are: scripts call it in bursts, and the layers of the
framework cost as much as all else it takes.
"""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api import examples
from app.api.bodies import parse_object
from app.api.deps import OpenRelay, WithChat, caller_with
from app.api.edge import header_values
from app.api.errors import BodyInvalid, BodyTooLarge, refuse
from app.api.openapi import answers, header, takes, with_grant
from app.bootstrap import Relay
from app.channels.base import describe
from app.delivery.drafts import Draft
from app.delivery.messages import LINK, OPERATOR
from app.errors import RelayError
from app.wire.payloads import NewMessage

MAX_BODY = 4 * 1024 * 1024  # a text of 1 MiB may be written in escapes
MAX_KEY = 128
HOST_NAMES = {OPERATOR: "operator", LINK: "link"}

router = APIRouter(tags=["messages"])


KEYED = {
    "parameters": [header("Idempotency-Key", "a copy with the same key gets the same answer", {"maxLength": MAX_KEY})]
}


@router.post(
    "/messages",
    status_code=202,
    openapi_extra=takes(NewMessage, examples.MESSAGE) | KEYED | {"security": with_grant("chat")},
    responses=answers(examples.ACCEPTED, 202),
)
async def send(request: Request, relay: OpenRelay) -> Response:
    """Keep a message for devices. A copy with the same `Idempotency-Key` gets the same answer, for 24 hours."""
    return _accepted(await _accept(relay, request.scope, request.receive))


@router.get("/messages/{message_id}", responses=answers(examples.FOLLOWED))
async def look(message_id: str, relay: OpenRelay, _: WithChat) -> dict[str, Any]:
    """The whole text, and what became of it: `state` of a delivery is kept, sent, woken, acked or void."""
    found = await relay.messages.look(message_id)
    stored = found.stored
    return {
        "message_id": message_id, "kind": stored.kind, "message": orjson.loads(stored.body),
        "sender": HOST_NAMES.get(stored.sender or "", stored.sender),
        "created_at": stored.created_at, "expires_at": stored.expires_at,
        "deliveries": [
            {"device_id": receipt.device_id, "seq": receipt.seq, "state": receipt.state}
            | ({"reason": receipt.reason} if receipt.reason else {})
            for receipt in found.receipts
        ],
    }  # fmt: skip


@router.delete("/messages/{message_id}", responses=answers(examples.TAKEN_BACK))
async def cancel(message_id: str, relay: OpenRelay, _: WithChat) -> dict[str, Any]:
    """Take it back from the devices that have not confirmed it; `cancelled` names them."""
    return {"message_id": message_id, "cancelled": await relay.messages.cancel(message_id)}


class Sending:
    """Pure ASGI: answers `POST /messages` as the route does, and passes everything else on."""

    def __init__(self, app: ASGIApp, relay: Relay) -> None:
        self._app, self._relay = app, relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/messages" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            response = _accepted(await _accept(self._relay, scope, receive))
        except RelayError as exc:
            response = refuse(scope, exc)
        await response(scope, receive, send)


def _accepted(answer: dict[str, Any]) -> Response:
    return Response(orjson.dumps(answer), 202, media_type="application/json")


async def _accept(relay: Relay, scope: Scope, receive: Receive) -> dict[str, Any]:
    caller = await caller_with("chat", relay, scope)
    said = parse(await read(receive))
    return await relay.messages.send(draft_of(said), sender=caller.sender, key=key_of(scope))


# what the routes of older clients share


async def read(receive: Receive, most: int = MAX_BODY) -> bytes:
    """The body, of at most so many bytes. Raises BodyTooLarge, ClientDisconnect."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect()
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > most:
            raise BodyTooLarge(f"the body may have at most {most} bytes")
        if not message.get("more_body"):
            return b"".join(chunks)


def parse(body: bytes) -> NewMessage:
    """Raises BodyInvalid, which does not repeat the text."""
    value = parse_object(body)
    if not isinstance(value.get("text"), str) or not value["text"].strip():
        raise BodyInvalid("text is required")
    try:
        return NewMessage.model_validate(value)
    except ValidationError as exc:
        raise BodyInvalid(describe(exc)) from None


def draft_of(said: NewMessage) -> Draft:
    extra = {"reply_to": said.reply_to, "surfacing": said.surfacing, "metadata": said.metadata}
    return Draft(
        text=said.text, title=said.title, device_id=said.device_id, chat_id=said.chat_id, thread_id=said.thread_id,
        kind=said.kind, source="cron" if said.kind == "cron" else "script", wake=said.wake, ttl_s=said.ttl_seconds,
        message_id=said.message_id, extra={name: value for name, value in extra.items() if value is not None},
    )  # fmt: skip


def key_of(scope: Scope) -> str | None:
    """The Idempotency-Key. Raises BodyInvalid."""
    key = next(iter(header_values(scope, b"idempotency-key")), "").strip()
    if len(key) > MAX_KEY:
        raise BodyInvalid(f"an Idempotency-Key has at most {MAX_KEY} characters")
    return key or None
