"""One connection of the plugin: frames in, one at a time and in order, and frames out.

What a durable frame means is stored before it is answered, so a connection that is cut at any point loses nothing: the
plugin sends again what has no answer. The meaning itself is the handler's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from app.clock import Sleep
from app.errors import OutcomeUncertain, Overloaded, RelayError
from app.hermes.link import codec
from app.hermes.link.codec import Answered, Commanded, Durable, Hello, Passing, Unreadable, Verdict
from app.hermes.link.errors import LinkVersion
from app.tasks import Supervisor
from app.wire import close

log = logging.getLogger("talaria.hermes.link")


class Socket(Protocol):
    """What a connection needs of a WebSocket; the API edge adapts the server's."""

    def listen(self, message: Callable[[bytes, bool], None]) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def write(self, frame: bytes) -> bool: ...
    async def drain(self) -> None: ...
    def raise_limit(self, max_message: int) -> None: ...
    async def close(self, code: int, reason: str) -> None: ...
    async def closed(self) -> None: ...
    def abort(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Spool:
    """How far the relay has got with the plugin's spool."""

    received: int
    refused: list[codec.Json] = field(default_factory=list)  # recent ones: {n, code, message}


class Handler(Protocol):
    """What the frames mean."""

    async def opened(self, hello: Hello) -> Spool:
        """A plugin is there; it has not been welcomed yet."""

    def welcomed(self, hello: Hello) -> None:
        """From here on it can be sent to."""

    async def durable(self, spool: str, frame: Durable) -> Verdict:
        """Its effect is stored when this returns. RelayError: not stored, the plugin has to send it again."""

    async def refused(self, spool: str, n: int, verdict: Verdict) -> None:
        """A durable frame could not be read; that is stored when this returns. RelayError: it is not."""

    def passing(self, spool: str, frame: Passing) -> None: ...

    def lost(self) -> None:
        """Nobody can be sent to any more."""


Command: TypeAlias = Callable[[Commanded], Awaitable[codec.Json]]  # {status, result, device_id} or {code, message}


@dataclass(frozen=True, slots=True)
class LinkLimits:
    hello_seconds: float = 10.0
    recheck_seconds: float = 5.0  # whether the token it came with still is the token
    waiting_frames: int = 256  # read ahead of the worker; when full nothing more is read
    waiting_bytes: int = 4 * 1024 * 1024
    outgoing_bytes: int = 16 * 1024 * 1024  # a plugin behind which more than this waits is cut off
    commands: int = 32  # to phones, that have no result yet; more are refused
    stall_seconds: float = 30.0  # that a full transport may take to drain
    close_seconds: float = 1.0
    handshake_seconds: float = 5.0


class Connection:
    """`still_valid` says whether the token it came with still opens the link. `command` carries out a command, and
    returns what is to be said of it.
    """

    def __init__(
        self, socket: Socket, *, tasks: Supervisor, limits: LinkLimits, sleep: Sleep, relay_id: str,
        handler: Handler, still_valid: Callable[[], bool], took_over: Callable[[Connection], None],
        command: Command,
    ) -> None:  # fmt: skip
        self._socket, self._tasks, self._limits, self._sleep = socket, tasks, limits, sleep
        self._relay_id, self._handler, self._still_valid, self._took_over = relay_id, handler, still_valid, took_over
        self._carries_out = command
        self._inbound: deque[bytes] = deque()
        self._inbound_bytes = 0
        self._worker: asyncio.Task[None] | None = None
        self._outgoing: deque[bytes] = deque()
        self._outgoing_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._answers: dict[str, asyncio.Future[Answered]] = {}
        self._commands: set[asyncio.Task[None]] = set()
        self._closing = False
        self.hello: Hello | None = None  # None until it was welcomed

    async def run(self) -> None:
        """Until the socket is gone."""
        late = asyncio.get_running_loop().call_later(self._limits.hello_seconds, self._hello_is_late)
        watch = self._tasks.start(self._watch_token(), "link token")
        self._socket.raise_limit(codec.MAX_FRAME)
        self._socket.listen(self._message)
        try:
            await self._socket.closed()
        finally:
            late.cancel()
            watch.cancel()
            self._ended()

    def end(self, code: int, reason: str) -> None:
        """Close without waiting; nothing that was read is worked on any more."""
        if not self._closing:
            self._closing = True
            self._tasks.start(self._close(code, reason), "close link")

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(self._limits.close_seconds):
                await self._socket.close(code, reason)
            async with asyncio.timeout(self._limits.handshake_seconds):
                await self._socket.closed()
        except TimeoutError:
            pass
        finally:
            self._socket.abort()

    def _ended(self) -> None:
        self._closing = True
        self._inbound.clear()
        self._outgoing.clear()
        for task in (self._worker, self._writer, *self._commands):
            if task is not None and not task.done():
                task.cancel()
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(OutcomeUncertain())
                answer.exception()  # looked at, though nobody may wait for it any more

    def _hello_is_late(self) -> None:
        if self.hello is None:
            self.end(close.AUTH_TIMEOUT, "no hello in time")

    async def _watch_token(self) -> None:
        while self._still_valid():
            await self._sleep(self._limits.recheck_seconds)
        log.warning("the link token was exchanged: the plugin has to come back with the new one")
        self.end(close.CREDENTIAL_REFUSED, "the link token was exchanged")

    # sending

    def send(self, frame: bytes) -> None:
        if self._closing:
            return
        if self._writer is None or self._writer.done():
            if not self._socket.write(frame):
                self._writer = self._tasks.start(self._drain(), "link writer")
            return
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        if self._outgoing_bytes > self._limits.outgoing_bytes:
            self.end(close.TOO_SLOW, "the plugin does not read")

    async def _drain(self) -> None:
        try:
            while True:
                async with asyncio.timeout(self._limits.stall_seconds):
                    await self._socket.drain()
                while self._outgoing:
                    frame = self._outgoing.popleft()
                    self._outgoing_bytes -= len(frame)
                    if not self._socket.write(frame):
                        break
                else:
                    return
        except TimeoutError:
            self.end(close.TOO_SLOW, "the plugin does not read")

    async def answer(self, answer_id: str, frame: bytes) -> Answered:
        """Send an answer to an ask. Raises OutcomeUncertain when the connection ends before it is confirmed."""
        heard: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._answers[answer_id] = heard
        try:
            self.send(frame)
            return await heard
        finally:
            self._answers.pop(answer_id, None)

    # receiving

    def _message(self, raw: bytes, is_text: bool) -> None:
        if self._closing:
            return
        self._inbound.append(raw)
        self._inbound_bytes += len(raw)
        limits = self._limits
        if len(self._inbound) >= limits.waiting_frames or self._inbound_bytes >= limits.waiting_bytes:
            self._socket.pause()
        if self._worker is None or self._worker.done():
            self._worker = self._tasks.start(self._work(), "link worker")

    async def _work(self) -> None:
        while self._inbound and not self._closing:
            raw = self._inbound.popleft()
            self._inbound_bytes -= len(raw)
            if not self._inbound:
                self._socket.resume()
            try:
                await self._take(raw)
            except RelayError as exc:
                log.error("the agent link is broken off", extra={"code": exc.code, "reason": exc.detail})
                self.end(close.TROUBLE, exc.code)
            except Exception:
                log.exception("the relay failed on a frame of the agent link")
                self.end(close.TROUBLE, RelayError.code)

    async def _take(self, raw: bytes) -> None:
        try:
            frame = codec.parse(raw)
        except Unreadable as exc:
            await self._refuse(exc)
            return
        if isinstance(frame, Hello):
            await self._greet(frame)
        elif self.hello is None:
            self.end(close.PROTOCOL_BROKEN, "hello comes first")
        elif isinstance(frame, Answered):
            heard = self._answers.get(frame.answer_id)
            if heard is not None and not heard.done():
                heard.set_result(frame)
        elif isinstance(frame, Commanded):
            self._command(frame)
        elif isinstance(frame, Durable):
            verdict = await self._handler.durable(self.hello.spool, frame)
            self.send(codec.verdict(frame.n, verdict))
        else:
            self._handler.passing(self.hello.spool, frame)

    def _command(self, frame: Commanded) -> None:
        """Its answer comes when there is one: nothing else waits for it."""
        if len(self._commands) >= self._limits.commands:
            error = Overloaded("wait for the results of the commands before")
            self.send(codec.result(frame.call_id, {"code": error.code, "message": error.message}))
            return
        task = self._tasks.start(self._carry_out(frame), "command of the link")
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _carry_out(self, frame: Commanded) -> None:
        self.send(codec.result(frame.call_id, await self._carries_out(frame)))

    async def _refuse(self, exc: Unreadable) -> None:
        log.warning("a frame of the agent link cannot be read", extra={"type": exc.type, "reason": str(exc)})
        if self.hello is None:
            self.end(close.PROTOCOL_BROKEN, exc.error.code)
        elif exc.n is not None:
            verdict = Verdict(code=exc.error.code, message=exc.error.message)
            await self._handler.refused(self.hello.spool, exc.n, verdict)
            self.send(codec.verdict(exc.n, verdict))

    async def _greet(self, hello: Hello) -> None:
        if self.hello is not None:
            self.end(close.PROTOCOL_BROKEN, "a second hello")
            return
        if hello.version != codec.VERSION:
            error = LinkVersion()
            log.warning("the plugin speaks another version of the link", extra={"version": hello.version})
            self.send(codec.refused(error.code, error.message))
            self.end(error.close_code or close.TROUBLE, error.code)
            return
        spool = await self._handler.opened(hello)
        if self._closing:
            return
        self.hello = hello
        self._took_over(self)
        self.send(codec.welcome(self._relay_id, spool.received, spool.refused))
        self._handler.welcomed(hello)
