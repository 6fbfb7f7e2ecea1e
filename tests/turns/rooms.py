"""Turns on a real database and a served stand-in, with phones and a clock that the test moves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import text

from app.approvals.service import Approvals
from app.clock import ManualClock
from app.db import Database, Tx, open_database
from app.delivery.hub import Hub
from app.delivery.news import News
from app.delivery.peer import Grants
from app.demo.agent import Agent
from app.demo.stand_in import StandIn, serve_stand_in
from app.hermes.dashboard.dashboard import Dashboard
from app.hermes.hermes import Hermes
from app.media.service import Media, open_media
from app.once.outward import Outward
from app.outbox import store as outbox
from app.settings import HermesSettings, MediaSettings
from app.tasks import Supervisor
from app.turns.runner import Turns
from app.wire.payloads import ChatSend, Supports

KEY = "stand-in-key-0123456789"
OURS = Supports(delivery=1, turns=1, typed_stream_events=True)
OLDER = Supports(typed_stream_events=True)
WAIT_S = 10.0
_links = itertools.count(1)

Frame = dict[str, Any]


@dataclass(eq=False)
class Phone:
    """One link, as the gateway shows it to the rooms. `full` is a reader that has stopped."""

    device_id: str = "phone"
    supports: Supports = OURS
    instance: str | None = None
    grants: Grants = field(default_factory=lambda: {"chat": None})
    link_id: int = field(default_factory=lambda: next(_links))
    frames: list[Frame] = field(default_factory=list)
    closed: bool = False
    full: bool = False
    session_id: str = "session"
    listens: bool = True
    queued: int = 0
    _read: int = 0
    _drained: list[Callable[[], None]] = field(default_factory=list)
    _on_close: list[Callable[[bool], None]] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    rung: asyncio.Event = field(default_factory=asyncio.Event)

    # what the rooms see

    def send(self, frame: bytes) -> None:
        if not self.closed:
            self.frames.append(orjson.loads(frame))
            self._news.set()

    def offer(self, frame: bytes) -> bool:
        if not self.full:
            self.send(frame)
        return not self.full

    def when_drained(self, callback: Callable[[], None]) -> None:
        self._drained.append(callback)

    def when_closed(self, callback: Callable[[bool], None]) -> None:
        self._on_close.append(callback)

    def ring(self) -> None:
        self.rung.set()

    def acknowledge(self, epoch: str, seq: int) -> None: ...
    def replay(self, after: int | None) -> None: ...
    def pong(self) -> None: ...
    async def subscribe(self) -> None: ...
    def unsubscribe(self) -> None: ...
    def regrant(self, grants: Grants) -> None: ...
    def end(self, code: int, reason: str) -> None: ...

    # what the test does

    def reads_again(self) -> None:
        self.full = False
        callbacks, self._drained = self._drained, []
        for callback in callbacks:
            callback()

    def hang_up(self) -> None:
        self.closed = True
        for callback in self._on_close:
            callback(True)

    async def until(self, type_: str, event: str | None = None) -> Frame:
        """Goes past frames up to the first of this type, or the first stream event of this name."""
        async with asyncio.timeout(WAIT_S):
            while True:
                while self._read < len(self.frames):
                    frame = self.frames[self._read]
                    self._read += 1
                    if frame["type"] == type_ and event in (None, frame["payload"].get("event")):
                        return frame
                self._news.clear()
                await self._news.wait()

    async def event(self, name: str) -> Frame:
        return await self.until("stream.event", name)

    def events(self) -> list[str]:
        return [frame["payload"]["event"] for frame in self.frames if frame["type"] == "stream.event"]

    def numbers(self) -> list[int]:
        return [frame["payload"]["seq"] for frame in self.frames if frame["type"] == "stream.event"]

    def types(self) -> list[str]:
        return [frame["type"] for frame in self.frames]


@dataclass
class Pauses:
    """Stands for sleep: moves the clock instead. While `gate` is cleared the sleeper waits."""

    clock: ManualClock
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    slept: list[float] = field(default_factory=list)
    sleeping: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.sleeping.set()
        await self.gate.wait()
        self.clock.advance(seconds)


@dataclass
class Rooms:
    db: Database
    clock: ManualClock
    tasks: Supervisor
    hub: Hub
    hermes: Hermes
    approvals: Approvals
    media: Media
    turns: Turns
    pauses: Pauses
    naps: Pauses  # of the dashboard; its gate is closed at first
    agent: Agent
    bell: Phone = field(default_factory=lambda: Phone("tablet", Supports(), grants={}))  # hears what is kept, no more

    def phone(self, device_id: str = "phone", supports: Supports = OURS, **fields: Any) -> Phone:
        """A link that is open and has what was kept for it."""
        phone = Phone(device_id, supports, **fields)
        self.hub.join(phone)
        self.turns.attach(phone)
        return phone

    def hang_up(self, phone: Phone) -> None:
        self.hub.leave(phone)
        phone.hang_up()

    async def send(self, phone: Phone, message: Any, frame_id: str | None = None, **fields: Any) -> dict[str, Any]:
        """The chat.accepted payload."""
        answers: list[dict[str, Any]] = []
        await self.turns.send(phone, ChatSend(message=message, **fields), frame_id, answers.append)
        return answers[0]

    async def session(self) -> str:
        return str((await self.hermes.api.create_session())["id"])

    async def kept(self, device_id: str = "phone") -> list[tuple[int, str, dict[str, Any]]]:
        """What waits in a mailbox: seq, type, payload."""
        frames = await self.db.read(lambda tx: outbox.after(tx, device_id, 0, 100, 0.0))
        return [(frame.seq, frame.type, orjson.loads(frame.body)) for frame in frames]

    async def stored(self, turn_id: str) -> Any:
        row = text("SELECT state, finish, session_id, lease, progress FROM turns WHERE turn_id = :turn")
        return await self.db.read(lambda tx: tx.one(row, {"turn": turn_id}))

    async def state_of(self, turn_id: str) -> str:
        return str((await self.stored(turn_id))[0])

    async def ended(self, turn_id: str) -> dict[str, Any]:
        """The payload of the kept end, once it is there."""
        async with asyncio.timeout(WAIT_S):
            while True:
                self.bell.rung.clear()
                for _, type_, payload in await self.kept():
                    if type_.startswith("turn.") and payload["turn_id"] == turn_id:
                        return payload
                await self.bell.rung.wait()


async def for_ever(seconds: float) -> None:
    """Stands for the sleep of rooms whose time does not pass."""
    await asyncio.Event().wait()


def open_device(tx: Tx, device_id: str) -> None:
    insert = text("INSERT INTO devices (device_id, name, about, created_at) VALUES (:device, :device, '{}', 0)")
    tx.execute(insert, {"device": device_id})
    paired = text("INSERT INTO sessions (session_id, device_id, grants, created_at) VALUES (:device, :device, '{}', 0)")
    tx.execute(paired, {"device": device_id})
    outbox.open_mailbox(tx, device_id)
    outbox.join_audience(tx, device_id)


async def open_devices(db: Database) -> None:
    for device in ("phone", "tablet"):
        await db.write(partial(open_device, device_id=device))


@asynccontextmanager
async def open_rooms(
    path: Path, url: str, *, clock: ManualClock | None = None, board: StandIn | None = None
) -> AsyncIterator[Rooms]:
    """A relay's rooms without its gateway, before `recover`. May be opened again on the same path: a restart.

    With a `board` its dashboard is used, and is connected.
    """
    clock = clock or ManualClock()
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(open_database(f"sqlite:///{path / 'talaria.db'}"))
        tasks = await stack.enter_async_context(Supervisor())
        hub = Hub()
        settings = HermesSettings(
            hermes_api_url=url, hermes_api_key=KEY,  # type: ignore[arg-type]
            hermes_dashboard_url=board.dashboard_url if board else "",
            hermes_dashboard_token=board.dashboard_token if board else None,  # type: ignore[arg-type]
        )  # fmt: skip
        dashboard, naps = None, Pauses(ManualClock())
        if board is not None:
            dashboard = await stack.enter_async_context(
                Dashboard(settings, tasks, titled=News(hub, clock).titled, sleep=naps)
            )
            await dashboard.settled()
        hermes = await stack.enter_async_context(Hermes(settings, tasks, dashboard))
        pauses = Pauses(clock)
        pauses.gate.set()
        outward = Outward(db, clock, tasks)
        approvals = Approvals(db=db, clock=clock, tasks=tasks, bell=hub.ring, outward=outward, sleep=for_ever)
        stack.push_async_callback(approvals.close)
        media = await stack.enter_async_context(
            open_media(MediaSettings(media_max_mb=20), db=db, clock=clock, data_dir=path)
        )
        turns = Turns(
            db=db, clock=clock, tasks=tasks, hub=hub, hermes=hermes, approvals=approvals, outward=outward,
            pictures=media, sleep=pauses,
        )  # fmt: skip
        stack.push_async_callback(turns.close)
        if dashboard is not None:
            dashboard.begun = turns.begun
        rooms = Rooms(db, clock, tasks, hub, hermes, approvals, media, turns, pauses, naps, Agent())
        hub.join(rooms.bell)
        yield rooms


@asynccontextmanager
async def open_house(path: Path, agent: Agent | None = None) -> AsyncIterator[tuple[Rooms, StandIn]]:
    async with serve_stand_in(KEY, agent=agent or Agent(delay_s=0)) as hermes, open_rooms(path, hermes.url) as rooms:
        rooms.agent = hermes.agent
        await open_devices(rooms.db)
        yield rooms, hermes
