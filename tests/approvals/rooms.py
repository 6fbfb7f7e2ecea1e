"""Approvals on a real database, with a clock and a sleep that the test moves, and an agent that really waits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import text

from app.approvals.ask import Ask
from app.approvals.service import Approvals
from app.clock import ManualClock
from app.db import Database, open_database
from app.errors import RelayError
from app.once.outward import Outward
from app.outbox import store as outbox
from app.tasks import Supervisor
from tests.turns.rooms import open_device

WAIT_S = 10.0
DEVICES = ("phone", "tablet")

Kept = tuple[str, dict[str, Any]]  # type, payload


@dataclass(eq=False)
class Agent:
    """One session of Hermes: it waits for the oldest approval, which has no id, until it gives up by itself."""

    clock: ManualClock
    pending: list[tuple[str, float]] = field(default_factory=list)  # command, when it gives up
    allowed: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    questions: dict[str, str | None] = field(default_factory=dict)
    fails: Exception | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    called: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def _reached(self, said: str) -> None:
        self.calls.append(said)
        self.called.set()
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails

    async def waits_for(self, tool_id: str) -> bool:
        return True

    async def decide(self, choice: str) -> int:
        await self._reached(choice)
        waiting = [entry for entry in self.pending if self.clock.monotonic() < entry[1]]
        if not waiting:
            return 0
        self.pending = waiting[1:]
        (self.denied if choice == "deny" else self.allowed).append(waiting[0][0])
        return 1

    async def answer(self, ref: str, text: str) -> bool:
        await self._reached(text)
        if self.questions.get(ref, "gone") is not None:
            return False
        self.questions[ref] = text
        return True


@dataclass(eq=False)
class Sleeper:
    """Stands for sleep: wakes those whose time has come when the test has moved the clock."""

    clock: ManualClock
    naps: list[tuple[float, asyncio.Event]] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        nap = (self.clock.monotonic() + seconds, asyncio.Event())
        self.naps.append(nap)
        try:
            await nap[1].wait()
        finally:
            self.naps.remove(nap)

    def wake(self) -> bool:
        due = [event for at, event in self.naps if at <= self.clock.monotonic() and not event.is_set()]
        for event in due:
            event.set()
        return bool(due)


@dataclass(eq=False)
class Rooms:
    """`crash` ends everything as a killed process does, and opens it again as the next one would."""

    path: Path
    clock: ManualClock
    db: Database
    tasks: Supervisor
    approvals: Approvals
    stack: AsyncExitStack
    sleeper: Sleeper
    agent: Agent
    rung: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def now(self) -> float:
        return self.clock.now()

    # what is asked

    async def ask(
        self, summary: str = "rm -r build", *, wait: bool = True, agent: Agent | None = None, **more: Any
    ) -> str:
        """An approval that the agent really waits for. Returns its id."""
        fields: dict[str, Any] = {
            "lane": "s1", "kind": "approval", "timeout_s": 60.0, "turn_id": "t1", "session_id": "s1",
            "tool": "terminal", "choices": ("once", "session", "always", "deny"),
        } | more  # fmt: skip
        agent = agent or self.agent
        if fields["kind"] == "approval":
            agent.pending.append((summary, self.clock.monotonic() + fields["timeout_s"]))
        else:
            agent.questions[fields["ref"]] = None
        if wait:
            await self.quiet()
        before = len(await self.kept())
        self.approvals.asked(Ask(summary=summary, **fields), agent)
        if not wait:
            return ""
        kept = await self.until(lambda kept: len(kept) > before)
        return str(kept[before][1].get("approval_id") or kept[before][1]["question_id"])

    async def question(self, text: str = "Which branch?", ref: str = "r1", **more: Any) -> str:
        return await self.ask(text, kind="question", ref=ref, tool=None, **{"choices": ("main", "dev")} | more)

    async def respond(
        self, id: str, choice: str = "once", *, by: str = "phone", key: str | None = None
    ) -> dict[str, Any]:
        return await self.approvals.respond(by, id, choice, key)

    # what devices were told

    async def kept(self, device_id: str = "phone") -> list[Kept]:
        frames = await self.db.read(lambda tx: outbox.after(tx, device_id, 0, 2000, 0.0))
        return [(frame.type, orjson.loads(frame.body)) for frame in frames]

    async def until(self, match: Callable[[list[Kept]], bool]) -> list[Kept]:
        async with asyncio.timeout(WAIT_S):
            while True:
                self.rung.clear()
                if match(kept := await self.kept()):
                    return kept
                await self.rung.wait()

    async def outcome(self, id: str) -> dict[str, Any]:
        """Once it is kept."""
        await self.until(lambda kept: bool(outcomes(kept, id)))
        (payload,) = outcomes(await self.kept(), id)
        return payload

    def states(self) -> dict[str, str]:
        """Of the approvals that a device which connects now is told of: summary → state."""
        return {payload["summary"]: payload["state"] for payload in self.approvals.open()[0]}

    async def row(self, id: str) -> Mapping[str, Any]:
        columns = ("state", "outcome", "answer", "answered_by", "reminded")
        query = text(f"SELECT {', '.join(columns)} FROM approvals WHERE approval_id = :id")
        row = await self.db.read(lambda tx: tx.one(query, {"id": id}))
        assert row is not None
        return dict(zip(columns, row, strict=True))

    # time and trouble

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.quiet()

    async def quiet(self) -> None:
        """Everything that time and the tests have set off is done."""
        for _ in range(5):
            self.sleeper.wake()
            for _ in range(5):
                await asyncio.sleep(0)
            await self.approvals._course.ledger.settled()
            with suppress(RelayError):
                await self.db.write(lambda tx: None)

    async def fill_disk(self, *, full: bool = True) -> None:
        pages = await self.db.read(lambda tx: tx.one(text("PRAGMA page_count")))
        assert pages is not None
        most = pages[0] if full else 100_000
        await self.db.write(lambda tx: tx.execute(text(f"PRAGMA max_page_count={most}")).close())

    async def lock_disk(self) -> sqlite3.Connection:
        """Until it is closed, nothing can be stored: another program holds the database."""
        await self.db.write(lambda tx: tx.execute(text("PRAGMA busy_timeout=0")).close())
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        return other

    async def crash(self) -> None:
        await self.stack.aclose()
        await self._open()
        await self.approvals.recover()
        await self.quiet()

    async def _open(self) -> None:
        self.stack = AsyncExitStack()
        self.db = await self.stack.enter_async_context(open_database(f"sqlite:///{self.path}"))
        self.tasks = await self.stack.enter_async_context(Supervisor())
        self.sleeper = Sleeper(self.clock)
        self.approvals = Approvals(
            db=self.db, clock=self.clock, tasks=self.tasks, bell=self._ring,
            outward=Outward(self.db, self.clock, self.tasks), sleep=self.sleeper,
        )  # fmt: skip

    def _ring(self, devices: Iterable[str]) -> None:
        self.rung.set()


def outcomes(kept: list[Kept], id: str) -> list[dict[str, Any]]:
    types = ("approval.resolved", "question.closed")
    return [said for type_, said in kept if type_ in types and id in (said.get("approval_id"), said.get("question_id"))]


def requests(kept: list[Kept]) -> list[tuple[str, str]]:
    """(summary, state) of each kept approval.request."""
    return [(said["summary"], said["state"]) for type_, said in kept if type_ == "approval.request"]


@asynccontextmanager
async def open_rooms(path: Path) -> AsyncIterator[Rooms]:
    clock = ManualClock()
    rooms = Rooms.__new__(Rooms)
    rooms.path, rooms.clock, rooms.agent, rooms.rung = path, clock, Agent(clock), asyncio.Event()
    await rooms._open()
    for device in DEVICES:
        await rooms.db.write(lambda tx, device=device: open_device(tx, device))  # type: ignore[misc]
    try:
        yield rooms
    finally:
        await rooms.stack.aclose()
