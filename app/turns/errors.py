"""Why a chat.send, a chat.watch or a turn fails in the relay."""

from __future__ import annotations

import re
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


class TurnUnknown(RelayError):
    """There is no such turn."""

    code = "turn_unknown"
    http_status = 404


class TurnStopped(RelayError):
    """This message was taken back before Hermes had it."""

    code = "turn_stopped"
    http_status = 409


class TurnKnown(RelayError):
    """A message with this Idempotency-Key was taken before, and is not sent again: its conversation has the answer."""

    code = "turn_known"
    http_status = 409


class AgentFailed(RelayError):
    """The agent failed and did not say why: its own log may."""

    code = "agent_failed"
    layer = "agent"
    http_status = 502


class ModelFailed(AgentFailed):
    """The agent got no answer from its model."""

    code = "model_failed"


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


def model_failed(said: str) -> ModelFailed:
    """With what the owner can do about it."""
    if re.search(r"\b(401|403)\b", said):
        hint = "check the key of its model in Hermes' settings"
    elif re.search(r"\b(429|402)\b", said):
        hint = "its provider limits it: wait, or look at the account"
    elif "Connection" in said or "timed out" in said:
        hint = "check that the model's server runs and can be reached from Hermes"
    else:
        hint = "check the model in Hermes' settings"
    return ModelFailed(f"{said} ({hint})")


def described(error: RelayError) -> dict[str, Any]:
    """`error` of a turn's end."""
    said = {"code": error.code, "message": error.message, "layer": error.layer, "retryable": error.retryable}
    return said if error.retry_after is None else said | {"retry_after": error.retry_after}


POOL = 4  # turns at once that the smallest Hermes runs: its threads are the processors and four


def waiting(others: int) -> dict[str, Any]:
    """Payload of `run.waiting`: Hermes has the message and says nothing. `others` run there too."""
    if others >= POOL:
        return {"code": "upstream_capacity", "message": f"Hermes has the message and runs {others} others before it."}
    return {"code": "model_slow", "message": "Hermes has the message; its model has not begun to answer."}
