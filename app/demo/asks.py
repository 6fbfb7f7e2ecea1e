"""What waits for a person: approvals, which have no id and are answered oldest first, and questions, which have one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

CHOICES = ("once", "session", "always", "deny")
TIMEOUT = "timeout"  # the outcome of an approval that nobody answered


class Asks:
    """Of all turns of one agent. A lane is one conversation on the dashboard, or one run.

    Expiry is silent, as in Hermes: who asked finds out, and nobody else.
    """

    def __init__(self, approval_timeout_s: float, question_timeout_s: float) -> None:
        self.approval_timeout_s = approval_timeout_s
        self.question_timeout_s = question_timeout_s
        self._approvals: dict[str, list[asyncio.Future[str]]] = {}
        self._questions: dict[str, tuple[str, asyncio.Future[str]]] = {}
        self._allowed: set[tuple[str, str]] = set()  # lane, or "" for all of them, and pattern

    async def approval(self, lane: str, pattern: str, tell: Callable[[], None]) -> str:
        """The choice, or TIMEOUT. Patterns allowed before, here or for always, are not asked about again."""
        if {(lane, pattern), ("", pattern)} & self._allowed:
            return "session"
        asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = self._approvals.setdefault(lane, [])
        waiting.append(asked)
        tell()
        try:
            async with asyncio.timeout(self.approval_timeout_s):
                choice = await asked
        except TimeoutError:
            return TIMEOUT
        finally:
            waiting.remove(asked)
        if choice in ("session", "always"):
            self._allowed.add((lane if choice == "session" else "", pattern))
        return choice

    def decide(self, lane: str, choice: str, *, every: bool = False) -> int:
        """Answers the oldest approval of the lane, or every one. How many that were."""
        open_ = [asked for asked in self._approvals.get(lane, ()) if not asked.done()]
        chosen = open_ if every else open_[:1]
        for asked in chosen:
            asked.set_result(choice)
        return len(chosen)

    async def question(self, lane: str, tell: Callable[[str], None]) -> str:
        """The answer; empty if nobody gave one."""
        request_id, asked = uuid.uuid4().hex[:8], asyncio.get_running_loop().create_future()
        self._questions[request_id] = lane, asked
        tell(request_id)
        try:
            async with asyncio.timeout(self.question_timeout_s):
                return str(await asked)
        except TimeoutError:
            return ""
        finally:
            del self._questions[request_id]

    def answer(self, request_id: str, text: str) -> bool:
        """False: it is not asked, or not any more."""
        _, asked = self._questions.get(request_id, ("", None))
        if asked is None or asked.done():
            return False
        asked.set_result(text)
        return True

    def is_asking(self, lane: str) -> bool:
        """Whether a question of this lane waits. An approval does not count, as in Hermes."""
        return any(of == lane for of, _ in self._questions.values())
