"""What every figure is given: scratch space, how often to repeat, and the servers it asks for."""

from __future__ import annotations

import asyncio
import gc
import itertools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from deploy.bench import processes
from deploy.bench.machine import Meter
from deploy.bench.phone import pair
from deploy.bench.processes import Server
from deploy.bench.report import NOISY

S = TypeVar("S")

PATIENCE_SECONDS = 45.0
LOOK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Paired:
    """A stopped relay's directory, and the tokens of the devices paired with it."""

    scratch: Path
    tokens: list[str]

    def age(self) -> None:
        """As if no device had been seen for long: noting that it is back is part of what a connect costs."""
        with closing(sqlite3.connect(self.scratch / "data" / "talaria.db")) as db, db:
            db.execute("UPDATE sessions SET last_seen_at = 0")


class Lab:
    def __init__(self, root: Path, reps: int) -> None:
        self.root = root
        self.reps = reps
        self._numbers = itertools.count(1)
        self._paired: Paired | None = None
        self._patience = PATIENCE_SECONDS

    async def quiet(self) -> None:
        """Wait for a moment in which others leave the machine alone, while the patience of the whole run lasts."""
        while self._patience > 0:
            with Meter([]) as meter:
                await asyncio.sleep(LOOK_SECONDS)
            self._patience -= meter.seconds
            if meter.usage.others < NOISY:
                return

    def scratch(self) -> Path:
        path = self.root / str(next(self._numbers))
        path.mkdir()
        return path

    @asynccontextmanager
    async def bare_echo(self) -> AsyncIterator[Server]:
        async with processes.bare_echo(self.scratch()) as server:
            yield server

    @asynccontextmanager
    async def raw_fan(self) -> AsyncIterator[Server]:
        async with processes.raw_fan(self.scratch()) as server:
            yield server

    @asynccontextmanager
    async def relay(self, devices: int) -> AsyncIterator[tuple[Server, list[str]]]:
        """A new relay without an agent, and the tokens of devices paired with it."""
        async with processes.relay(self.scratch()) as server:
            yield server, await pair(server, devices)

    async def paired(self, devices: int) -> Paired:
        """Made once: pairing a thousand devices takes longer than what is measured with them."""
        if self._paired is None or len(self._paired.tokens) != devices:
            scratch = self.scratch()
            async with processes.relay(scratch) as server:
                self._paired = Paired(scratch, await pair(server, devices))
        return self._paired

    @asynccontextmanager
    async def relay_and_agent(
        self, devices: int, *, dashboard: bool = False
    ) -> AsyncIterator[tuple[Server, Server, list[str]]]:
        """`dashboard`: the relay knows the agent's dashboard too, and runs turns over it."""
        async with (
            processes.stand_in(self.scratch()) as agent,
            processes.relay(self.scratch(), agent, agent.dashboard if dashboard else None) as server,
        ):
            yield server, agent, await pair(server, devices)

    async def in_turn(self, **sides: Callable[[], Awaitable[S]]) -> dict[str, list[S]]:
        """A B A B …: machines drift, and what they drift by must hit both sides alike."""
        found: dict[str, list[S]] = {name: [] for name in sides}
        for _ in range(self.reps):
            for name, run in sides.items():
                gc.collect()
                await self.quiet()
                found[name].append(await run())
                await asyncio.sleep(0.2)  # what was closed is let go of
        return found
