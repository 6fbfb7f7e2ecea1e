"""Why a chat.send, a chat.watch or a turn fails in the relay."""

from __future__ import annotations

from typing import Any

from app.errors import RelayError


class TurnQueueFull(RelayError):
    """Too many messages wait already; send this one again when an answer is there."""

    code = "turn_queue_full"
    http_status = 429
    retryable = True


class MessageTooLong(RelayError):
    """The message is longer than Hermes takes."""

    code = "message_too_long"
    http_status = 413


class MediaUnsupported(RelayError):
    """Uploaded media cannot be sent with a message yet."""

    code = "media_unsupported"
    http_status = 400


class TurnUnknown(RelayError):
    """There is no such turn."""

    code = "turn_unknown"
    http_status = 404


class AgentFailed(RelayError):
    """The agent failed and did not say why."""

    code = "agent_failed"
    layer = "agent"
    http_status = 502


class TurnUncertain(RelayError):
    """What became of this turn is not known: look at the conversation before you send it again."""

    code = "turn_uncertain"


class TurnInterrupted(RelayError):
    """Hermes stopped while this turn ran: its answer is incomplete."""

    code = "turn_interrupted"
    layer = "upstream"
    http_status = 502
    retryable = True


class TurnExpired(RelayError):
    """The relay was away for too long to send this message still."""

    code = "turn_expired"
    http_status = 410
    retryable = True


def described(error: RelayError) -> dict[str, Any]:
    """`error` of a turn's end."""
    said = {"code": error.code, "message": error.message, "layer": error.layer, "retryable": error.retryable}
    return said if error.retry_after is None else said | {"retry_after": error.retry_after}
