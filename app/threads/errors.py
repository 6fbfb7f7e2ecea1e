"""Why something cannot be said in a chat."""

from __future__ import annotations

from app.errors import RelayError


class ChatUnknown(RelayError):
    """There is no such chat: use "home", one that threads.list names, or "device:" with the id of a paired device."""

    code = "chat_unknown"
    http_status = 404


class ChatsFull(RelayError):
    """There are as many chats as there may be: use one of them."""

    code = "chats_full"
    http_status = 409


class QueueFull(RelayError):
    """Too much waits in this chat for Hermes' messaging gateway: start it, and send this again later."""

    code = "queue_full"
    http_status = 507
    retryable = True
    layer = "upstream"
