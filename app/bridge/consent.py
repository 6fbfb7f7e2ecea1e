"""Asks the owner before something reaches other people or other apps. Any of their devices may answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from app.approvals.ask import MAX_TEXT, Ask
from app.approvals.service import Approvals
from app.bridge.commands import Command
from app.bridge.errors import Denied
from app.delivery.drafts import fitting
from app.errors import Draining, Overloaded

LANE = "bridge:"  # each command has a lane of its own: they can be answered in any order
ANSWER_S = 120.0  # for the owner to answer
LOOK_S = 1.0  # so often it is looked whether the caller still waits
MAX_OPEN = 16  # at a time; more than that nobody reads


class Consent:
    def __init__(self, approvals: Approvals, *, answer_s: float = ANSWER_S) -> None:
        self._approvals, self._answer_s = approvals, answer_s
        self._open: dict[str, _Asker] = {}

    def recover(self) -> None:
        """After a start: what was asked before it, nobody waits for."""
        self._approvals.passed_by(LANE)

    async def ask(
        self, id: str, command: Command, args: Mapping[str, Any], *, device: str, caller: str,
        wanted: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Returns once it is allowed. Raises Denied, Overloaded."""
        summary = _summary(command, args)
        if fitting(summary, MAX_TEXT) != summary:
            raise Denied("this is too long for the owner to be shown all of it, so nobody is asked to allow it")
        if len(self._open) >= MAX_OPEN:
            raise Overloaded("the owner is asked more than they have answered; wait for the answers")
        asker = self._open[id] = _Asker()
        lane = LANE + id
        ask = Ask(
            lane=lane, kind="approval", summary=summary, timeout_s=self._answer_s, tool=command.name,
            choices=("once", "deny"), ref=id, description=f"By {_visible(device)}, asked for by {caller}.",
        )  # fmt: skip
        try:
            self._approvals.asked(ask, asker)
            choice = await self._answer(asker, wanted)
        finally:
            del self._open[id]
            if not asker.decided:
                asker.choice.cancel()
                self._approvals.passed_by(lane)
        if choice is None:
            raise Denied("nobody allowed it in time")
        if choice != "once":
            raise Denied()

    async def _answer(self, asker: _Asker, wanted: Callable[[], bool]) -> str | None:
        left = self._answer_s
        while left > 0 and wanted():
            done, _ = await asyncio.wait({asker.choice}, timeout=min(LOOK_S, left))
            if done:
                return asker.choice.result()
            left -= LOOK_S
        return None

    def drain(self) -> None:
        """Before a restart: what nobody has allowed yet is not done."""
        for asker in self._open.values():
            if not asker.choice.done():
                asker.choice.set_exception(Draining(retry_after=3))


class _Asker:
    """Implements approvals.ask.Asker."""

    def __init__(self) -> None:
        self.choice: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.decided = False

    async def waits_for(self, tool_id: str) -> bool:
        return not self.choice.done()

    async def decide(self, choice: str) -> int:
        if self.choice.done():
            return 0
        self.decided = True
        self.choice.set_result(choice)
        return 1

    async def answer(self, ref: str, text: str) -> bool:
        return False  # it asks no questions


def _summary(command: Command, args: Mapping[str, Any]) -> str:
    """All of it: who allows something must see what. One line for each argument: no value can look like another."""
    said = {name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in args.items()}
    return "\n".join([command.summary, *(f"{_visible(name)}: {_visible(value)}" for name, value in said.items())])


def _visible(text: str) -> str:
    """What ends a line, or hides or reorders text, is escaped."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
