"""What the agent waits for a person to decide: approvals, questions, confirmations; and how Hermes is told the answer.

Hermes keeps them in the memory of its process, so they end with it. It says nothing when one expires or is answered by
another way (`/approve` typed); `still_open` asks it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

APPROVAL_S, CONFIRM_S, CLARIFY_S = 60, 300, 3600  # Hermes's own defaults, where it does not tell

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """`key` is Hermes's session key; `hermes_id` its id of a question or a confirmation (an approval has none)."""

    ask_id: str
    kind: str
    key: str
    hermes_id: str
    chat_id: str
    thread_id: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """`resolved` 0: it was not waiting any more. `text` is what a confirmed command says, and belongs into the chat."""

    resolved: int
    text: str | None = None


async def answer(ask: Ask, choice: str) -> Answered:
    """Hand the decision to Hermes. An approval resolves the oldest of its session, whichever that is."""
    if ask.kind == "approval":
        from tools.approval import resolve_gateway_approval

        return Answered(int(resolve_gateway_approval(ask.key, choice) or 0))
    if ask.kind == "question":
        from tools.clarify_gateway import resolve_gateway_clarify

        return Answered(int(bool(resolve_gateway_clarify(ask.hermes_id, choice))))
    from tools.slash_confirm import resolve

    if not still_open(ask):
        return Answered(0)
    text = await resolve(ask.key, ask.hermes_id, "cancel" if choice == "deny" else choice)
    return Answered(1, str(text) if text else None)


def still_open(ask: Ask) -> bool:
    """False only when Hermes says so; a version that cannot be asked leaves it to the relay's clock."""
    try:
        if ask.kind == "approval":
            from tools.approval import has_blocking_approval

            return bool(has_blocking_approval(ask.key))
        if ask.kind == "question":
            from tools.clarify_gateway import get_pending_for_session

            entry = get_pending_for_session(ask.key, include_choice_prompts=True)
            return entry is not None and str(getattr(entry, "clarify_id", ask.hermes_id)) == ask.hermes_id
        from tools.slash_confirm import get_pending

        pending = get_pending(ask.key)
        return bool(pending) and str(pending.get("confirm_id", ask.hermes_id)) == ask.hermes_id
    except (ImportError, TypeError, AttributeError):
        logger.debug("talaria: this Hermes does not tell what is open", exc_info=True)
        return True


def approval_timeout() -> int:
    """Seconds that the agent waits."""

    def read() -> Any:
        from tools.approval import _get_approval_config

        return _get_approval_config().get("timeout")

    return _seconds(read, APPROVAL_S)


def clarify_timeout() -> int:
    def read() -> Any:
        from tools.clarify_gateway import get_clarify_timeout

        return get_clarify_timeout()

    return _seconds(read, CLARIFY_S)


def confirm_timeout() -> int:
    def read() -> Any:
        from tools.slash_confirm import DEFAULT_TIMEOUT_SECONDS

        return DEFAULT_TIMEOUT_SECONDS

    return _seconds(read, CONFIRM_S)


def _seconds(read: Callable[[], Any], default: int) -> int:
    try:
        return int(read()) or default
    except Exception:  # another version's internals; its default is ours
        return default
