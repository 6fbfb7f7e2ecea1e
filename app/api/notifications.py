"""Notifications of phones, as hermes-relay gives them to its host and the agent."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Query

from app.api import examples
from app.api.bodies import PeerRoute
from app.api.deps import OpenRelay, WithNotificationsOrHostTool
from app.api.errors import BodyInvalid
from app.api.openapi import answers
from app.channels.service import as_json
from app.wire.notifications import MAX_LIMIT


class NotificationsRoute(PeerRoute):
    """A caller who may not is told so by a line of text."""

    texts: ClassVar[frozenset[int]] = frozenset({401, 403})


peer = APIRouter(tags=["hermes-relay"], route_class=NotificationsRoute)
router = APIRouter()

NAMES = ("package_name", "title", "text", "sub_text", "posted_at", "key", "removed_at")
Limit = Annotated[
    str,  # so that hermes-relay's words can refuse another
    Query(
        description=f"how many, the newest first; at most {MAX_LIMIT} are given",
        json_schema_extra={"type": "integer", "minimum": 1},
    ),
]


@peer.get("/notifications/recent", responses=answers(examples.NOTIFICATIONS))
async def recent(relay: OpenRelay, _: WithNotificationsOrHostTool, limit: Limit = str(MAX_LIMIT)) -> dict[str, Any]:
    """What apps posted on the phones, the newest first; `removed_at`, in Unix seconds, where it was removed there."""
    found = await relay.notifications.recent(_parse(limit))
    shown = [{name: value for name, value in as_json(one).items() if name in NAMES} for one in found]
    return {"ok": True, "notifications": shown, "count": len(shown)}


def _parse(limit: str) -> int:
    """Raises BodyInvalid, in the words of hermes-relay."""
    if not re.fullmatch("-?[0-9]{1,18}", limit):
        raise BodyInvalid("limit must be an integer")
    if int(limit) < 1:
        raise BodyInvalid("limit must be >= 1")
    return int(limit)


router.include_router(peer)
