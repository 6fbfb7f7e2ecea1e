"""The rounds of the crash matrix: in each, one fault meets four turns of every way at once, one in each state."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.hermes.hermes_lab import Lab
from tests.hermes.line import Line, laid
from tests.hermes.matrix import CELLS, CUT, KILLED, RELAY_KILLED, RESTARTED, STATES, WAYS
from tests.hermes.narrow import RUNS, narrowed
from tests.hermes.points import Points, hurry
from tests.hermes.talk import ENDS, send
from tests.hermes.ways import environ, up
from tests.phone import Frame, Phone, authenticate, open_socket
from tests.relay import RunningRelay, running, settings_for

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 60.0
SHORT = "SAY:done"


@dataclass
class Side:
    """One way in one round: its relay's settings, its lines to Hermes, and its turns by state."""

    way: str
    fault: str
    data_dir: Path
    environ: dict[str, str]
    lines: list[Line]
    markers: dict[str, str] = field(default_factory=lambda: {state: uuid.uuid4().hex for state in STATES})
    turns: dict[str, str] = field(default_factory=dict)
    token: str = ""

    @property
    def words(self) -> int:
        """Of a long answer, twenty a second: a fault is to be in its middle, and a cut waits until all have begun."""
        return 240 if self.fault == CUT else 120

    @property
    def long(self) -> str:
        return f"WORDS:{self.words} DELAY:50"

    @property
    def submits(self) -> str:
        """A cut meets it once it is under way; else it is held until the fault is over."""
        return self.long if self.fault == CUT else SHORT

    def point(self, state: str) -> str:
        return f"{state}:{self.way}"

    async def begin(self, phone: Phone, reached: Callable[[str], Awaitable[None]]) -> None:
        """Returns when each turn is in its state. The running one is last: its answer is to be under way."""
        self.token = phone.token
        await self._send(phone, "accepted", SHORT, reached)
        await self._send(phone, "submitting", self.submits, reached)
        await self._send(phone, "ending", SHORT, reached)
        self.turns["running"] = (await send(phone, f"{self.markers['running']} {self.long}"))["turn_id"]
        await phone.until("stream.event", self._answers)

    async def _send(self, phone: Phone, state: str, text: str, reached: Callable[[str], Awaitable[None]]) -> None:
        sent = await send(phone, f"AT:{self.point(state)} {self.markers[state]} {text}")
        self.turns[state] = sent["turn_id"]
        await reached(self.point(state))

    def _answers(self, frame: Frame) -> bool:
        return frame.payload["turn_id"] == self.turns["running"] and frame.payload["event"] == "assistant.delta"

    async def finish(self, phone: Phone, lab: Lab) -> None:
        """Wait for the ends, and write them down. A turn without one hangs."""
        ends: dict[str, dict[str, Any]] = {}
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                while len(ends) < len(self.turns):
                    frame = await phone.next()
                    if frame.type in ENDS:
                        ends[frame.payload["turn_id"]] = frame.payload
        except TimeoutError:
            pass
        for state, turn_id in self.turns.items():
            sent = {"submitting": self.submits, "running": self.long}.get(state, SHORT)
            whole = "done" if sent == SHORT else " ".join(f"w{n}" for n in range(1, self.words + 1))
            finish = _finish(ends.get(turn_id), whole)
            CELLS[(self.fault, self.way, state)] = finish, lab.times_run(self.markers[state])


def _finish(end: dict[str, Any] | None, whole: str) -> str:
    if end is None:
        return "hangs"
    is_whole = end["finish"] != "completed" or end["text"] == whole
    return end["finish"] if is_whole else f"completed as {end['text'][-20:]!r}"


@asynccontextmanager
async def sides(fault: str, lab: Lab, home: Path) -> AsyncIterator[list[Side]]:
    async with AsyncExitStack() as stack:
        found = []
        for way in WAYS:
            url = await stack.enter_async_context(narrowed(lab.url, hide=RUNS)) if way == "completions" else lab.url
            lines = [await stack.enter_async_context(laid(target)) for target in (url, lab.dashboard)]
            values = environ(way, lab, api=lines[0].url, dashboard=lines[1].url)
            found.append(Side(way, fault, home / way, values, lines))
        yield found


async def together(work: Iterable[Coroutine[Any, Any, Any]]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)


# the relay dies


async def relay_killed(lab: Lab, home: Path, patch: pytest.MonkeyPatch) -> None:
    async with sides(RELAY_KILLED, lab, home) as ways, AsyncExitStack() as stack:
        await together(_live_and_die(side) for side in ways)
        phones = {}
        for side in ways:
            relay = await stack.enter_async_context(running(settings_for(side.data_dir, **side.environ)))
            hurry(relay.relay.hermes, patch.setattr)
            phones[side.way] = await relay.connect(session_token=side.token)
        await together(side.finish(phones[side.way], lab) for side in ways)


async def _live_and_die(side: Side) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.hermes.doomed", str(side.data_dir), side.way), cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)} | {f"LAB_{k}": v for k, v in side.environ.items()},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    said = process.stdout

    async def next_said(key: str) -> Any:
        return json.loads(await asyncio.wait_for(said.readline(), ENDS_WITHIN_S))[key]

    async def reached(point: str) -> None:
        assert await next_said("reached") == point

    try:
        listens = await next_said("listens")
        async with open_socket(listens["url"]) as socket:
            await side.begin(await authenticate(socket, pairing_code=listens["code"]), reached)
            process.kill()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


# what the relay talks to dies


@dataclass
class Round:
    lab: Lab
    points: Points
    sides: list[Side]
    relays: dict[str, RunningRelay] = field(default_factory=dict)
    phones: dict[str, Phone] = field(default_factory=dict)

    async def open(self, stack: AsyncExitStack, patch: pytest.MonkeyPatch) -> None:
        self.points.install(patch.setattr)
        for side in self.sides:
            relay = await stack.enter_async_context(running(settings_for(side.data_dir, **side.environ)))
            hurry(relay.relay.hermes, patch.setattr)
            await up(side.way, relay)
            self.relays[side.way], self.phones[side.way] = relay, await relay.connect()
        await together(side.begin(self.phones[side.way], self.points.reached) for side in self.sides)

    def let_go(self, *states: str) -> None:
        for side in self.sides:
            for state in states:
                self.points.let_go(side.point(state))

    async def hermes_is_back(self) -> None:
        for side in self.sides:
            await up(side.way, self.relays[side.way])


async def cut(round: Round) -> None:
    """What was held before its first byte leaves now, and arrives; the lines break before anything comes back."""
    for side in round.sides:
        api, dashboard = side.lines
        api.deafen(after=side.markers["submitting"])  # some ways read the history first
        dashboard.deafen()  # the frames of a WebSocket are masked
    round.let_go("submitting")
    for side in round.sides:
        await _begun(round.lab, side.markers["submitting"])
    for line in (line for side in round.sides for line in side.lines):
        line.drop()
    await round.hermes_is_back()


async def _begun(lab: Lab, marker: str) -> None:
    """The model has been asked."""
    log = await asyncio.create_subprocess_exec(
        "tail", "-n", "+1", "-F", lab.model_log, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        limit=1 << 20,
    )  # fmt: skip
    assert log.stdout is not None
    try:
        async with asyncio.timeout(ENDS_WITHIN_S):
            while marker.encode() not in await log.stdout.readline():
                pass
    finally:
        log.kill()
        await log.wait()


async def restarted(round: Round) -> None:
    await asyncio.to_thread(round.lab.restart, "gateway", "dashboard")
    await round.hermes_is_back()


async def killed(round: Round) -> None:
    round.lab.kill("gateway", "dashboard")
    await restarted(round)


STRIKES = {CUT: cut, RESTARTED: restarted, KILLED: killed}


async def played(fault: str, lab: Lab, home: Path, patch: pytest.MonkeyPatch) -> None:
    """One round, into CELLS."""
    if fault == RELAY_KILLED:
        await relay_killed(lab, home, patch)
        return
    async with sides(fault, lab, home) as ways, AsyncExitStack() as stack:
        round_ = Round(lab, Points(), ways)
        await round_.open(stack, patch)
        await STRIKES[fault](round_)
        round_.let_go(*STATES)
        await together(side.finish(round_.phones[side.way], lab) for side in ways)
