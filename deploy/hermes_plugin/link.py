"""The socket to the relay: dials, greets, sends what the spool holds in order, and hands on what arrives.

Durable frames come from the spool alone, new or older than this connection: replay and sending are one loop. Droppable
frames are of two sorts. `now` sends each once; of more than MAX_QUEUED the oldest goes. `latest` keeps the newest of
its key and sends at most one per LATEST_EVERY_S; of more than MAX_LATEST keys the oldest goes. Both end with the link.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import websockets
from websockets.asyncio.client import ClientConnection, connect

from .config import LinkConfig
from .files import FileRefused, Files, drop
from .spool import Kept, Spool, SpoolRenewed, dumps

VERSION = 1
MAX_FRAME = 1024 * 1024
MAX_QUEUED = 1_000
MAX_LATEST = 256
LATEST_EVERY_S = 0.1  # Hermes edits every 50 ms; nobody reads faster than this
FIRST_DELAY_S, LAST_DELAY_S = 1.0, 30.0
REFUSED_DELAY_S = 60.0  # a wrong token or version mends only when somebody acts
HELLO_S = 10.0
CLOSE_S = 1.0  # a gateway that stops does not wait for what is still unread
VERDICT_S = 5.0
LOOK_EVERY_S = 1.0  # another process may have put something into the spool
UPLOAD_TRIES = 5
STEADY_S = 5.0  # a link that ends sooner did not help, and the next try waits longer than the last
SUPERSEDED, UNSUPPORTED, CREDENTIAL_REFUSED = 4409, 4406, 4401

Frame = dict[str, Any]

logger = logging.getLogger(__name__)


class LinkRefused(Exception):
    """The relay will not have this plugin; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the relay said to a durable frame. `spooled`: nothing yet, it waits on disk."""

    ok: bool
    spooled: bool = False
    code: str = ""
    message: str = ""


SPOOLED = Verdict(ok=True, spooled=True)
TOO_BIG = Verdict(ok=False, code="frame_too_big", message="it is larger than a frame of the link may be")


class Link:
    """One gateway's connection.

    `greeting()` gives the hello's own fields; `receive(frame)` gets what is for the adapter and must not wait long;
    `refused(frame, verdict)` hears of a refusal that nobody waited for.
    """

    def __init__(
        self,
        config: LinkConfig,
        spool: Spool,
        files: Files,
        *,
        greeting: Callable[[], Frame],
        receive: Callable[[Frame], Awaitable[None]],
        refused: Callable[[Frame, Verdict], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._config, self._spool, self._files = config, spool, files
        self._greeting, self._receive, self._refused, self._sleep = greeting, receive, refused, sleep
        self._wake = asyncio.Event()
        self._queued: deque[Frame] = deque(maxlen=MAX_QUEUED)
        self._latest: dict[tuple[str, str], Frame] = {}
        self._latest_due = 0.0
        self._waiting: dict[int, asyncio.Future[Verdict]] = {}
        self._uploads: dict[int, int] = {}
        self.up = asyncio.Event()
        self.max_text: int | None = None
        self._restarted = True

    # what the adapter calls

    async def keep(self, frame: Frame, file: Path | None = None) -> Verdict:
        """On disk when this returns; with the link up, after the relay's word or VERDICT_S. Raises SpoolFull."""
        n = await self._spool.do(Spool.append, frame, file)
        self._wake.set()
        if not self.up.is_set():
            return SPOOLED
        self._waiting[n] = answer = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(VERDICT_S):
                return await answer
        except TimeoutError:
            return SPOOLED
        finally:
            self._waiting.pop(n, None)

    def poke(self) -> None:
        """Something was put into the spool beside `keep`."""
        self._wake.set()

    def now(self, frame: Frame) -> None:
        if self.up.is_set():
            self._queued.append(frame)
            self._wake.set()

    def latest(self, key: tuple[str, str], frame: Frame) -> None:
        if not self.up.is_set():
            return
        if key not in self._latest and len(self._latest) >= MAX_LATEST:
            self._latest.pop(next(iter(self._latest)))
        self._latest[key] = frame
        self._wake.set()

    def forget(self, key: tuple[str, str]) -> None:
        """A final version is under way: an older one must not follow it."""
        self._latest.pop(key, None)

    # the life of the connection

    async def run(self) -> None:
        """Until cancelled."""
        delay = FIRST_DELAY_S
        while True:
            began = time.monotonic()
            try:
                async with self._dial() as socket:
                    await self._greet(socket)
                    began = time.monotonic()
                    await self._serve(socket)
            except LinkRefused as exc:
                logger.error("talaria: %s", exc)
                delay = REFUSED_DELAY_S
            except SpoolRenewed:
                logger.warning("talaria: the spool is older than what the relay has seen; it goes on as a new one")
            except websockets.ConnectionClosed as exc:
                delay = self._closed(exc, delay)
            except websockets.InvalidStatus as exc:
                delay = self._turned_away(exc.response.status_code, delay)
            except (OSError, TimeoutError, ValueError, websockets.WebSocketException, httpx.HTTPError) as exc:
                logger.info("talaria: no link to %s (%s)", self._config.url, str(exc) or type(exc).__name__)
            except Exception:  # a full disk under the spool, a frame of a later relay: the link must outlive them
                logger.exception("talaria: the link to %s failed", self._config.url)
            finally:
                steady = self.up.is_set() and time.monotonic() - began >= STEADY_S
                self._down()
            if steady:
                delay = FIRST_DELAY_S
            await self._sleep(delay * random.uniform(0.5, 1.0))
            delay = min(LAST_DELAY_S, delay * 2)

    def _dial(self) -> connect:
        return connect(
            self._config.socket_url,
            additional_headers={"Authorization": f"Bearer {self._config.token}"},
            compression=None,
            open_timeout=HELLO_S,
            ping_interval=30,
            ping_timeout=60,
            close_timeout=CLOSE_S,
            max_size=MAX_FRAME,
        )

    async def _greet(self, socket: ClientConnection) -> None:
        """Raises LinkRefused, SpoolRenewed, ValueError, TimeoutError."""
        spool = await self._spool.do(Spool.identity)
        hello = {"type": "hello", "version": VERSION, "spool": spool, "restarted": self._restarted, **self._greeting()}
        await socket.send(dumps(hello))
        async with asyncio.timeout(HELLO_S):
            answer = parse(await socket.recv())
        if answer["type"] == "refused":
            raise LinkRefused(str(answer.get("message") or "the relay refused this plugin: install the one it ships"))
        if answer["type"] != "welcome":
            raise ValueError("the relay did not say welcome")
        self._restarted = False
        limit = answer.get("max_text")
        self.max_text = limit if isinstance(limit, int) and limit > 0 else None
        received = int(answer.get("received") or 0)
        for said in answer.get("refused") or ():
            await self._read({**said, "type": "no"})
        await self._spool.do(Spool.settle_through, received)
        for n in [n for n in self._waiting if n <= received]:
            self._answer(n, Verdict(ok=True))

    async def _serve(self, socket: ClientConnection) -> None:
        """Until either direction fails; then that failure."""
        logger.info("talaria: linked to %s", self._config.url)
        self.up.set()
        self._wake.set()
        both = [asyncio.create_task(self._write(socket)), asyncio.create_task(self._read_all(socket))]
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _read_all(self, socket: ClientConnection) -> None:
        while True:
            await self._read(parse(await socket.recv()))

    async def _read(self, frame: Frame) -> None:
        match frame["type"]:
            case "ok":
                await self._settled(int(frame["n"]), Verdict(ok=True))
            case "no":
                code, message = str(frame.get("code") or "refused"), str(frame.get("message") or "the relay refused it")
                await self._settled(int(frame["n"]), Verdict(ok=False, code=code, message=message))
            case _:
                await self._receive(frame)

    async def _settled(self, n: int, verdict: Verdict) -> None:
        frame = await self._spool.do(Spool.settle, n, None if verdict.ok else verdict.message)
        heard = self._answer(n, verdict)
        if not verdict.ok and not heard and frame is not None:
            await self._refused(frame, verdict)

    def _answer(self, n: int, verdict: Verdict) -> bool:
        """Whether somebody still waited."""
        waiting = self._waiting.get(n)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(verdict)
        return True

    async def _write(self, socket: ClientConnection) -> None:
        sent = 0
        while True:
            # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._wake.wait()
            self._wake.clear()
            while self._queued:
                await socket.send(dumps(self._queued.popleft()))
            while kept := await self._spool.do(Spool.pending, sent):
                for item in kept:
                    raw = dumps(with_time_left(await self._uploaded(item)) | {"n": item.n})
                    sent = item.n
                    if len(raw.encode()) > MAX_FRAME:  # would end the link each time that it is tried
                        await self._settled(item.n, TOO_BIG)
                        continue
                    await socket.send(raw)
            await self._write_latest(socket)

    async def _write_latest(self, socket: ClientConnection) -> None:
        if not self._latest:
            return
        early = self._latest_due - time.monotonic()
        if early > 0:
            asyncio.get_running_loop().call_later(early, self._wake.set)
            return
        self._latest_due = time.monotonic() + LATEST_EVERY_S
        newest, self._latest = self._latest, {}
        for frame in newest.values():
            await socket.send(dumps(frame))

    async def _uploaded(self, item: Kept) -> Frame:
        """The frame with a token for its file; without, and with a word about it, when the file cannot cross."""
        if item.file is None:
            return item.frame
        frame = dict(item.frame)
        try:
            frame["media"] = [await self._files.upload(item.file)]
        except FileRefused as exc:
            frame["text"] = f"{frame['text']}\n\n⚠️ {exc}".strip()
        except (httpx.HTTPError, KeyError, ValueError):
            tries = self._uploads[item.n] = self._uploads.get(item.n, 0) + 1
            if tries < UPLOAD_TRIES:
                raise
            frame["text"] = f"{frame['text']}\n\n⚠️ {item.file.name} was not sent: the relay cannot take files".strip()
        self._uploads.pop(item.n, None)
        await self._spool.do(Spool.attach, item.n, frame)
        drop(item.file)
        return frame

    def _down(self) -> None:
        self.up.clear()
        self._queued.clear()
        self._latest.clear()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(SPOOLED)

    def _turned_away(self, status: int, delay: float) -> float:
        if status in (401, 403):
            logger.error(
                "talaria: %s does not accept TALARIA_LINK_TOKEN; `talaria token link` prints the right one",
                self._config.url,
            )
            return REFUSED_DELAY_S
        logger.warning("talaria: %s answered %s instead of the link", self._config.url, status)
        return delay

    def _closed(self, exc: websockets.ConnectionClosed, delay: float) -> float:
        code = exc.rcvd.code if exc.rcvd else None
        if code == SUPERSEDED:
            logger.error(
                "talaria: another Hermes gateway took the link to %s over; only one may use a relay", self._config.url
            )
            return REFUSED_DELAY_S
        if code == CREDENTIAL_REFUSED:
            return self._turned_away(401, delay)
        if code == UNSUPPORTED:
            return REFUSED_DELAY_S
        logger.info("talaria: the link to %s ended (%s)", self._config.url, code or "lost")
        return delay


def with_time_left(frame: Frame) -> Frame:
    """An ask says how long its answer is still good for; `asked_at` stays in the spool."""
    if "asked_at" not in frame:
        return frame
    left = {name: value for name, value in frame.items() if name != "asked_at"}
    return left | {"timeout_s": max(0.0, frame["timeout_s"] - max(0.0, time.time() - frame["asked_at"]))}


def parse(raw: str | bytes) -> Frame:
    """Raises ValueError."""
    frame = json.loads(raw)
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise ValueError("the relay sent something that is no frame")
    return frame
