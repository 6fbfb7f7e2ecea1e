"""What every way of running a turn in Hermes offers, and in which words it says what happens.

The words are those of the session stream (its event names and fields), whatever the upstream calls them itself:

    run.started {run_id?}   message.started {message?}   assistant.delta {delta}   reasoning.delta {delta}
    tool.started {tool_id?, tool_name, preview?, args?}   tool.progress {tool_id?, tool_name, ...}
    tool.completed | tool.failed {tool_id?, tool_name, result?, error?, duration_s?}
    assistant.commentary {text, already_streamed?}   assistant.completed {content: its last segment}
    approval.request {command, description?, choices, timeout_s?, tool_id?}   approval.responded {choice?}
    clarify.request {request_id, question, choices?, timeout_s}
    run.completed {completed, interrupted?, usage?, messages?}   run.failed {error}   run.cancelled {}   error   done

`assistant.completed` and the ends may carry `session_id`: where the conversation is now. Anything else is passed on
under its own name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from app.hermes.lease import Lease
from app.hermes.listener import Listener

Json: TypeAlias = dict[str, Any]
Event: TypeAlias = tuple[str, Json | None]  # name and body; None: it cannot be read, or no frame could carry it


@dataclass(frozen=True, slots=True)
class Passed:
    """What a client of Hermes' own API asked besides its message, and who listens, while somebody does.

    `session_key` goes in Hermes' header of that name. Only the session stream takes such a turn.
    """

    body: Json
    session_key: str | None = None
    listener: Listener | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """What a turn asks of Hermes. `message` is text, or parts."""

    message: Any
    model: str | None = None
    profile: str | None = None
    passed: Passed | None = None


class Followed(Enum):
    """What became of a turn whose stream broke off, as far as its upstream knows."""

    ENDED = "ended"  # its end was heard
    RUNNING = "running"  # ask again later
    GONE = "gone"  # nothing runs there any more, and no end was heard: the history knows how it ended
    UNKNOWN = "unknown"  # this upstream cannot tell


class Hearer(Protocol):
    """Who hears a turn. Nothing here blocks; `events` runs in the read callback of the socket."""

    def events(self, events: Sequence[Event]) -> None: ...

    def accepted(self, run_id: str | None = None) -> None:
        """Hermes has taken the message. `run_id` is its own name for the run, where it has one."""

    def restated(self, text: str) -> None:
        """The answer so far, after a gap: what tools and thoughts there were before is not known."""

    async def silent(self) -> bool:
        """Asked again and again while an upstream whose events another client may have taken says nothing.

        True: the end was found elsewhere, stop listening.
        """


class Upstream(Protocol):
    """One way of running turns. Every method raises UpstreamError."""

    kind: str
    poll_s: tuple[float, float]  # first and longest pause between two looks at a turn whose stream broke off

    async def create(self, order: Order) -> Json:
        """A new conversation: {id, title?, model?}."""

    async def bind(self, lease: Lease) -> Lease:
        """Make ready what the submit needs, and name it in the lease. Nothing of the message is sent."""

    async def run(self, lease: Lease, order: Order, hearer: Hearer) -> None:
        """Submit, and listen to the end of the stream, which may come without the end of the turn.

        UpstreamUnreachable and refusals: Hermes has not got the message. StreamBroken: it may have it, or has it.
        """

    async def follow(self, lease: Lease, order: Order, hearer: Hearer) -> Followed:
        """Go on with a turn whose stream broke off, as long as it can be heard. Raises StreamBroken, as `run` does."""

    async def stop(self, lease: Lease) -> bool:
        """Ask Hermes to stop the turn. False: this upstream cannot."""

    async def decide(self, lease: Lease, choice: str) -> int:
        """Answer the oldest approval that waits in this session. How many it resolved.

        UpstreamUnreachable: it was not sent. OutcomeUncertain: nobody knows.
        """

    async def answer(self, lease: Lease, request_id: str, text: str) -> bool:
        """Answer a question. False: it is not asked any more. Raises as `decide`."""
