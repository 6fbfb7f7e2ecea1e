"""What the apps of a phone post there, so that the agent and the owner's other devices can read it."""

from __future__ import annotations

from typing import Any

from app.channels.base import Call, Channel, receives
from app.channels.service import PhoneNotifications, as_json
from app.wire.notifications import NotificationPosted, NotificationRemoved, NotificationsList


class Notifications(Channel):
    """Telling of one's own needs no grant and is not answered, as in hermes-relay; reading anybody's needs it."""

    name = "notifications"
    grant = "notifications"

    def __init__(self, notifications: PhoneNotifications) -> None:
        self._notifications = notifications

    @receives("notification.posted", NotificationPosted, needs_grant=False)
    def posted(self, payload: NotificationPosted, call: Call) -> None:
        self._notifications.posted(call.peer.device_id, payload)

    @receives("notification.removed", NotificationRemoved, needs_grant=False)
    def removed(self, payload: NotificationRemoved, call: Call) -> None:
        self._notifications.removed(call.peer.device_id, payload.key)

    @receives("notifications.list", NotificationsList)
    async def list(self, payload: NotificationsList, call: Call) -> None:
        before = None if payload.cursor is None else int(payload.cursor)
        found = await self._notifications.recent(payload.limit, before=before, device_id=payload.device_id)
        answer: dict[str, Any] = {"notifications": [as_json(one) for one in found]}
        if len(found) == payload.limit:
            answer["cursor"] = str(found[-1].row)
        call.answer("notifications.list", answer)
