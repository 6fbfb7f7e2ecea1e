"""The names hermes-relay has for messages, with its bodies, over the same mailboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api import examples
from app.api.bodies import PeerRoute
from app.api.deps import HostOrHostTool, OpenRelay, WithChatOrHostTool
from app.api.messages import KEYED, draft_of, key_of, parse, read
from app.api.openapi import answers, takes
from app.delivery.errors import MessageUnknown
from app.delivery.replies import Replies
from app.delivery.store import Reply
from app.wire.payloads import NewMessage
from app.wire.threads import ThreadsList

MAX_WAIT_S = 30.0
MAX_SHOWN = 500  # waiting messages in one answer


class PhoneRoute(PeerRoute):
    beside: ClassVar[dict[str, Any]] = {}


peer = APIRouter(tags=["hermes-relay"], route_class=PhoneRoute)
router = APIRouter(tags=["hermes-relay"])


@peer.post(
    "/phone/message", openapi_extra=takes(NewMessage, examples.MESSAGE) | KEYED, responses=answers(examples.DELIVERED)
)
async def message(request: Request, relay: OpenRelay, caller: HostOrHostTool) -> dict[str, Any]:
    """Keep a message for every device. `delivered` and `queued` are about now; GET /messages/{id} has the receipts."""
    said = parse(await read(request.receive))
    sent = await relay.messages.send(draft_of(said), sender=caller.sender, key=key_of(request.scope))
    devices = [delivery["device_id"] for delivery in sent["deliveries"]]
    # hermes-relay says "delivered" of what it wrote to a socket. Here it says no more than that: the message is stored
    # and a socket that takes messages is open. Whether the phone has it is known once it confirms.
    if any(link.listens for device in devices for link in relay.hub.of_device(device)):
        return {"delivered": True, "message_id": sent["message_id"]}
    buffered = await relay.messages.backlog(devices)
    return {"delivered": False, "queued": True, "message_id": sent["message_id"], "buffered": buffered}


@peer.get("/phone/outbound", responses=answers(examples.OUTBOUND))
async def outbound(relay: OpenRelay, _: WithChatOrHostTool) -> dict[str, Any]:
    """Messages that some device has not confirmed, oldest first."""
    waiting = await relay.messages.waiting(MAX_SHOWN)
    shown = []
    for one in waiting:
        body = orjson.loads(one.body)
        sent_at = int(one.created_at * 1000)
        shown.append({"message_id": one.id, "chat_id": body.get("chat_id"), "text": body["text"], "sent_at": sent_at})
    return {"queued": len(shown), "messages": shown}


@peer.delete("/phone/outbound", responses=answers(examples.CANCELLED))
async def cancel(relay: OpenRelay, _: WithChatOrHostTool, message_id: str | None = None) -> dict[str, int]:
    """Take one back, or all that wait."""
    if message_id is None:
        return {"cancelled": await relay.messages.cancel_waiting()}
    try:
        return {"cancelled": min(1, len(await relay.messages.cancel(message_id)))}
    except MessageUnknown:
        return {"cancelled": 0}


@peer.get("/phone/threads", responses=answers(examples.THREADS))
async def threads(relay: OpenRelay, caller: WithChatOrHostTool) -> dict[str, Any]:
    """The newest chats of Hermes' messaging gateway, as `threads.list` gives them."""
    device_id = caller.device.device_id if caller.device else ""
    found = await relay.threads.threads(device_id, ThreadsList())
    return {"threads": found["threads"]}


@peer.get("/phone/replies", responses=answers(examples.REPLIES))
async def replies(
    request: Request, relay: OpenRelay, _: HostOrHostTool, timeout: Annotated[float, Query(ge=0)] = 0
) -> Response:
    """What the owner has answered, each once; waits up to `timeout` seconds, at most 30, for the first."""
    fetching = relay.tasks.start(relay.replies.fetch(min(timeout, MAX_WAIT_S)), "fetch replies")
    leaving = relay.tasks.start(_left(request), "caller leaves")
    try:
        await asyncio.wait({fetching, leaving}, return_when=asyncio.FIRST_COMPLETED)
        is_gone = leaving.done()
    finally:
        leaving.cancel()
        fetching.cancel()  # too late for one that is done
    found = fetching.result() if fetching.done() else []
    if is_gone:
        relay.replies.release(found)
        return Response()
    return HandOver(found, relay.replies)


class HandOver(Response):
    """Deletes what it holds once it has been written."""

    def __init__(self, found: Sequence[Reply], replies: Replies) -> None:
        body = b'{"replies":[' + b",".join(reply.body for reply in found) + b"]}"
        super().__init__(body, media_type="application/json")
        self._found, self._replies = found, replies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except BaseException:
            self._replies.release(self._found)
            raise
        if self._found:
            await self._replies.done(self._found)


async def _left(request: Request) -> None:
    """Until the caller has gone: what it waits for must not be lost with it."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


router.include_router(peer)
