"""What the phone says: given to Hermes once, in the order in which the relay sends it.

The relay gives a chat's next message when the one before is done, and gives one again until it is `taken`. Taken is
written down when Hermes begins (`on_processing_start`), so that a copy after a restart is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from .files import FileRefused, Files
from .link import Frame, Link
from .spool import Spool

STARTED_S = 2.0  # handed over and not begun by then: Hermes answered in place (`/stop`, an answer to a question)
OWN_TURN_S = 600.0  # Hermes's own turn in the chat is waited for, but not for ever
READY_EVERY_S = 0.1
FETCH_TRIES = 3

Lane = tuple[str, str | None]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Flight:
    """One message between the relay's hand and the end of its turn."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    event: Any = None


@dataclass(slots=True)
class OwnTurns:
    """What Hermes does by itself in a lane; several can overlap while it starts."""

    running: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Inbound:
    def __init__(
        self, spool: Spool, link: Link, files: Files, *,
        ready: Callable[[], bool],
        give: Callable[[Frame, list[tuple[str, str]]], Awaitable[Any]],
        queued: Callable[[Any], bool],
        asked: Callable[[Lane], bool],
    ) -> None:  # fmt: skip
        """`ready()`: Hermes has finished starting; `give(frame, [(path, mime)])` hands over and returns Hermes's event;
        `queued(event)`: Hermes will run it later; `asked(lane)`: a question is open there."""
        self._spool, self._link, self._files = spool, link, files
        self._ready = ready
        self._give_to_hermes, self._queued, self._asked = give, queued, asked
        self._flights: dict[str, Flight] = {}
        self._own: dict[Lane, OwnTurns] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def receive(self, frame: Frame) -> None:
        inbound_id = str(frame["inbound_id"])
        if flight := self._flights.get(inbound_id):
            if flight.started.is_set():
                self._taken(inbound_id)
            return
        self._flights[inbound_id] = flight = Flight()
        if await self._spool.do(Spool.was_taken, inbound_id):
            del self._flights[inbound_id]
            self._taken(inbound_id)
            return
        task = asyncio.create_task(self._give(frame, inbound_id, flight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def started(self, message_id: str | None, lane: Lane) -> None:
        """Hermes begins. What it begins by itself (a turn again after a restart) holds the lane until it ends."""
        flight = self._flights.get(message_id or "")
        if flight is None:
            self._own.setdefault(lane, OwnTurns()).running += 1
            return
        await self._take(str(message_id), flight)

    async def ended(self, message_id: str | None, lane: Lane, outcome: str) -> None:
        if message_id in self._flights:
            await self._done(str(message_id), outcome)
        elif own := self._own.get(lane):
            own.running -= 1
            if own.running == 0:
                del self._own[lane]
                own.over.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _give(self, frame: Frame, inbound_id: str, flight: Flight) -> None:
        lane = (str(frame["chat_id"]), frame.get("thread_id"))
        try:
            await self._hermes_is_ready()
            await self._lane_is_free(lane, str(frame.get("text") or ""))
            flight.event = await self._give_to_hermes(*await self._with_media(frame))
        except Exception:
            logger.exception("talaria: Hermes could not take a message")
            await self._take(inbound_id, flight)
            await self._done(inbound_id, "failure")
            return
        try:
            async with asyncio.timeout(STARTED_S):
                await flight.started.wait()
        except TimeoutError:
            if not self._queued(flight.event):
                await self._take(inbound_id, flight)
                await self._done(inbound_id, "success")

    async def _hermes_is_ready(self) -> None:
        """While it repeats the turns that a restart cut, Hermes takes everything at once, joins it, and drops what is
        more than 32 messages."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OWN_TURN_S):
                while not self._ready():  # noqa: ASYNC110 - nothing tells the plugin when
                    await asyncio.sleep(READY_EVERY_S)

    async def _lane_is_free(self, lane: Lane, text: str) -> None:
        own = self._own.get(lane)
        if own is None or text.startswith("/") or self._asked(lane):
            return
        try:
            async with asyncio.timeout(OWN_TURN_S):
                await own.over.wait()
        except TimeoutError:
            logger.warning("talaria: Hermes's own turn in %s takes long; the next message interrupts it", lane[0])

    async def _with_media(self, frame: Frame) -> tuple[Frame, list[tuple[str, str]]]:
        """The files in Hermes's cache; the text says which one is missing."""
        found, text = [], str(frame.get("text") or "")
        for media in frame.get("media") or ():
            try:
                fetched = await self._fetch(media)
            except FileRefused as exc:
                text = f"{text}\n\n[{exc}]".strip()
            else:
                found.append((fetched.path, fetched.mime))
        return frame | {"text": text}, found

    async def _fetch(self, media: dict[str, Any]) -> Any:
        for _ in range(FETCH_TRIES):
            try:
                return await self._files.fetch(media)
            except httpx.HTTPError as exc:
                logger.info("talaria: an attached file did not come (%s)", type(exc).__name__)
        raise FileRefused(f"the attached {media.get('name') or 'file'} could not be fetched")

    async def _take(self, inbound_id: str, flight: Flight) -> None:
        if flight.started.is_set():
            return
        await self._spool.do(Spool.take, inbound_id)
        flight.started.set()
        self._taken(inbound_id)

    async def _done(self, inbound_id: str, outcome: str) -> None:
        if self._flights.pop(inbound_id, None) is None:
            return
        await self._spool.do(Spool.append, {"type": "done", "inbound_id": inbound_id, "outcome": outcome})
        self._link.poke()

    def _taken(self, inbound_id: str) -> None:
        self._link.now({"type": "taken", "inbound_id": inbound_id})
