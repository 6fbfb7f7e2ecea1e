"""Whatever happens in whatever order: an answer reaches what was meant or nothing, and every ask ends once."""

from __future__ import annotations

import random

import pytest

from app.approvals.errors import ApprovalClosed, ApprovalExpired, ApprovalWaiting
from app.errors import OutcomeUncertain
from app.hermes.errors import UpstreamUnreachable
from tests.approvals.rooms import Agent, Rooms, outcomes

STEPS = 80
REFUSED = (ApprovalClosed, ApprovalExpired, ApprovalWaiting, UpstreamUnreachable)


class Story:
    """One session that asks, is answered here or elsewhere and gives up by itself, and a relay that may be killed."""

    def __init__(self, rooms: Rooms, dice: random.Random) -> None:
        self.rooms, self.dice = rooms, dice
        self.agent: Agent = rooms.agent
        self.ids: dict[str, str] = {}  # command → approval
        self.meant: list[str] = []  # what devices were told that they allowed

    async def asks(self) -> None:
        command = f"c{len(self.ids)}"
        timeout_s = self.dice.choice([10.0, 60.0, 90.0])
        self.ids[command] = await self.rooms.ask(command, tool_id=command, timeout_s=timeout_s)

    async def is_answered(self) -> None:
        if not self.ids:
            return
        command = self.dice.choice(list(self.ids)[-4:])
        before = list(self.agent.allowed)
        # Nothing of what fails has arrived, and with the second nobody knows.
        self.agent.fails = self.dice.choice([UpstreamUnreachable(), OutcomeUncertain(), *[None] * 8])
        try:
            became = (await self.rooms.respond(self.ids[command]))["outcome"]
        except REFUSED:
            became = "refused"
        if became == "allowed":
            self.meant.append(command)
            self.agent.pending = [entry for entry in self.agent.pending if entry[0] != command]
        else:
            assert self.agent.allowed == before

    async def is_answered_elsewhere(self) -> None:
        waiting = [entry for entry in self.agent.pending if self.rooms.clock.monotonic() < entry[1]]
        if waiting:
            self.agent.pending = waiting[1:]
            self.rooms.approvals.passed("t1", waiting[0][0])

    async def gives_up(self) -> None:
        """Hermes says so of a tool some time after; that it was heard is not certain."""
        for command, ends in list(self.agent.pending):
            if ends <= self.rooms.clock.monotonic() and self.dice.random() < 0.5:
                self.agent.pending.remove((command, ends))
                self.rooms.approvals.passed("t1", command)

    async def time_passes(self) -> None:
        seconds = self.dice.choice([0.5, 3.0, 7.0, 20.0])
        if self.agent.pending and self.dice.random() < 0.5:  # to about the end of the oldest
            left = self.agent.pending[0][1] - self.rooms.clock.monotonic()
            seconds = max(0.0, left + self.dice.choice([-3.5, -2.5, -0.5, 0.5, 1.5, 2.5]))
        if self.dice.random() < 0.5:
            self.rooms.clock.advance(seconds)  # and nothing has looked at it yet
        else:
            await self.rooms.pass_time(seconds)

    async def relay_is_killed(self) -> None:
        await self.rooms.crash()
        if self.dice.random() < 0.8:
            self.rooms.approvals.adopt("t1", self.agent)

    async def turn_is_found(self) -> None:
        self.rooms.approvals.adopt("t1", self.agent)


@pytest.mark.parametrize("seed", range(16))
async def test_an_answer_reaches_what_was_meant_or_nothing(rooms: Rooms, seed: int) -> None:
    story = Story(rooms, random.Random(seed))
    steps = [story.asks, story.is_answered, story.is_answered_elsewhere, story.gives_up, story.time_passes]
    rare = [story.relay_is_killed, story.turn_is_found]
    for _ in range(STEPS):
        await story.dice.choice([*steps * 3, story.is_answered, *rare])()
        assert rooms.agent.allowed == story.meant
    await rooms.pass_time(200)
    kept = await rooms.kept()
    assert {command: len(outcomes(kept, id)) for command, id in story.ids.items()} == dict.fromkeys(story.ids, 1)
    assert [command for command, id in story.ids.items() if outcomes(kept, id)[0]["outcome"] == "allowed"] == sorted(
        story.meant, key=lambda command: int(command[1:])
    )
    assert rooms.approvals.open() == ([], [])
    assert list(rooms.approvals._register) == []
