"""What the gateway asks the owner: approvals, questions and confirmations, answered through the link."""

from __future__ import annotations

from dataclasses import dataclass

from app.approvals.ask import Ask, Kind
from app.approvals.service import Approvals
from app.hermes.link import codec
from app.hermes.link.line import AgentLink
from app.threads.store import Lane

PREFIX = "link:"  # of the lanes of all that is asked over the link
CONFIRM = ("once", "always", "cancel")


@dataclass(frozen=True, slots=True)
class Typed:
    """What a typed message answers."""

    kind: Kind
    id: str
    said: str  # the choice, or the answer


class LinkAsker:
    """Takes answers back to the plugin."""

    def __init__(self, link: AgentLink, ask_id: str) -> None:
        self._link, self._ask_id = link, ask_id

    async def waits_for(self, tool_id: str) -> bool:
        """The plugin says by itself when the agent went on."""
        return True

    async def decide(self, choice: str) -> int:
        heard = await self._link.answer(self._ask_id, choice=choice)
        return heard.resolved if heard.result == "ok" else 0

    async def answer(self, ref: str, text: str) -> bool:
        return (await self._link.answer(self._ask_id, text=text)).result == "ok"


class LinkAsks:
    def __init__(self, approvals: Approvals, link: AgentLink) -> None:
        self._approvals, self._link = approvals, link

    async def ask(self, frame: codec.Ask) -> None:
        """Returns once it is stored. A copy is known by its `ask_id`."""
        thread = Lane(frame.chat_id, frame.thread_id or "")
        lane = _lane(thread, frame)
        if await self._approvals.knows(lane, frame.ask_id):
            return
        ask = Ask(
            lane=lane,
            kind="question" if frame.kind == "question" else "approval",
            summary=frame.text,
            timeout_s=frame.timeout_s,
            tool="terminal" if frame.kind == "approval" else None,
            description=frame.description,
            choices=frame.choices or (CONFIRM if frame.kind == "confirm" else ()),
            ref=frame.ask_id,
            chat_id=frame.chat_id,
            thread_id=frame.thread_id,
        )
        self._approvals.asked(ask, LinkAsker(self._link, frame.ask_id))
        await self._approvals.stored()

    async def closed(self, ask_id: str) -> None:
        self._approvals.passed_by(PREFIX, ask_id)
        await self._approvals.stored()

    def gone(self) -> None:
        """The gateway was restarted: nobody waits for what its predecessor asked."""
        self._approvals.passed_by(PREFIX)

    def adopt(self) -> None:
        """A plugin is there: it takes the answers to what was asked before a restart of the relay."""
        self._approvals.adopt_by(PREFIX, lambda ref: LinkAsker(self._link, ref))

    def typed(self, thread: Lane, text: str) -> Typed | None:
        """What this text answers, if it is typed into this thread now."""
        lane = lane_of(thread)
        if not text.startswith("/"):
            id = self._approvals.open_in(lane, "question")
            return None if id is None else Typed("question", id, text)
        words = text[1:].lower().split()
        choice = {"approve": (words[1:2] or ["once"])[0], "deny": "deny"}.get(words[0]) if words else None
        id = self._approvals.open_in(lane, "approval") if choice is not None else None
        return None if id is None or choice is None else Typed("approval", id, choice)

    def questions(self) -> dict[str, str]:
        """Of all threads that have one open: lane → its id."""
        return self._approvals.open_all(PREFIX, "question")

    def is_open(self, typed_id: str) -> bool:
        return self._approvals.is_open(typed_id)

    async def answer(self, device_id: str, typed: Typed) -> None:
        """Raises what `Approvals.respond` and `.answer` raise."""
        if typed.kind == "question":
            await self._approvals.answer(device_id, typed.id, typed.said, None)
        else:
            await self._approvals.respond(device_id, typed.id, typed.said, None)


def lane_of(thread: Lane) -> str:
    return f"{PREFIX}{thread.chat_id}:{thread.thread_id}"


def _lane(thread: Lane, frame: codec.Ask) -> str:
    """Hermes resolves its oldest approval of a session; confirmations have an id there, and need no order."""
    return lane_of(thread) + (f":{frame.ask_id}" if frame.kind == "confirm" else "")
