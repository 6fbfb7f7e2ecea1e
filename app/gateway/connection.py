"""Drives one wire Link over a Socket: hands it messages in order, carries out its actions, is the rooms' Peer."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from app.channels.base import refusal, refusal_to
from app.delivery.peer import Grants
from app.errors import RelayError
from app.gateway.outbound import Outbound
from app.gateway.pump import Pump
from app.gateway.socket import Socket
from app.sessions.address import Address
from app.sessions.service import Principal
from app.wire import close
from app.wire.envelope import Envelope
from app.wire.link import MAX_MESSAGE, Close, Deliver, Link, Refuse, Verify
from app.wire.payloads import Supports

if TYPE_CHECKING:
    from app.gateway.gateway import Gateway

log = logging.getLogger("talaria.gateway")

NOTHING = Supports()
_ids = itertools.count(1)


class Connection:
    """Implements delivery.peer.Peer."""

    __slots__ = (
        "_closing", "_deadline", "_gateway", "_inbound", "_inbound_bytes", "_link", "_on_close", "_pump",
        "_socket", "_worker", "address", "bearer", "clean", "closed", "grants", "instance", "link_id",
        "origin", "outbound", "principal", "secure", "supports",
    )  # fmt: skip

    def __init__(
        self, socket: Socket, gateway: Gateway, address: Address, bearer: str | None, *,
        secure: bool, origin: str | None,
    ) -> None:  # fmt: skip
        self.link_id = next(_ids)
        self.address, self.bearer, self.secure, self.origin = address, bearer, secure, origin
        self.principal: Principal | None = None  # None until authenticated
        self.instance: str | None = None
        self.supports = NOTHING
        self.closed = False
        self.clean = False
        self.grants: Grants = {}
        self._socket = socket
        self._gateway = gateway
        self._link = Link()
        self.outbound = Outbound(socket, gateway.tasks, gateway.limits, gateway.traffic, self._evict)
        self._pump: Pump | None = None
        self._inbound: deque[tuple[bytes, bool]] = deque()
        self._inbound_bytes = 0
        self._worker: asyncio.Task[None] | None = None
        self._on_close: list[Callable[[bool], None]] = []
        self._closing = False
        self._deadline: asyncio.TimerHandle | None = None

    # who is there, once authenticated

    @property
    def authenticated(self) -> bool:
        return self.principal is not None

    @property
    def device_id(self) -> str:
        assert self.principal is not None
        return self.principal.device_id

    @property
    def session_id(self) -> str:
        assert self.principal is not None
        return self.principal.session_id

    # the rooms' side

    @property
    def queued(self) -> int:
        return self.outbound.queued

    def send(self, frame: bytes) -> None:
        self.outbound.send(frame)

    def offer(self, frame: bytes) -> bool:
        return self.outbound.offer(frame)

    def when_drained(self, callback: Callable[[], None]) -> None:
        self.outbound.when_drained(callback)

    def when_closed(self, callback: Callable[[bool], None]) -> None:
        self._on_close.append(callback)

    def ring(self) -> None:
        if self._pump is not None:
            self._pump.ring()

    def acknowledge(self, epoch: str, seq: int) -> None:
        if self._pump is not None:
            self._pump.acknowledge(epoch, seq)

    def replay(self, after: int | None) -> None:
        if self._pump is not None:
            self._pump.replay(after)

    def pong(self) -> None:
        if self._pump is not None:
            self._pump.pong()

    async def subscribe(self) -> None:
        if not self.supports.delivery:
            self._pump = await self._gateway.subscribe(self, self._pump)

    def unsubscribe(self) -> None:
        if not self.supports.delivery and self._pump is not None:
            self._pump.stop()

    @property
    def listens(self) -> bool:
        return self._pump is not None and not self._pump.stopped

    def regrant(self, grants: Grants) -> None:
        self.grants = grants

    def end(self, code: int, reason: str) -> None:
        """Close without waiting: a stopped reader blocks the close frame too, so it is cut off after a second."""
        if not self._closing:
            self._closing = True
            self._link.closed()
            self._gateway.tasks.start(self._close(code, reason), "close")

    def _evict(self) -> None:
        log.info("evicted a reader that stopped", extra={"link": self.link_id})
        self.end(close.TOO_SLOW, "reader too slow")

    async def _close(self, code: int, reason: str) -> None:
        limits = self._gateway.limits
        try:
            async with asyncio.timeout(limits.close_seconds):
                await self._socket.close(code, reason)
            async with asyncio.timeout(limits.handshake_seconds):
                await self._socket.closed()
        except TimeoutError:
            pass
        finally:
            self._socket.abort()
            self.outbound.close()

    # reading: in order, one at a time

    async def run(self) -> None:
        """Until the socket is gone."""
        self.wait_longer(self._gateway.limits.auth_seconds)
        self._socket.listen(self._message)
        try:
            await self._socket.closed()
        finally:
            self._ended()

    def wait_longer(self, seconds: float) -> None:
        """From now, until it has to be authenticated."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._auth_is_late)

    def _auth_is_late(self) -> None:
        if not self.authenticated:
            self.end(close.AUTH_TIMEOUT, "no auth in time")

    def _message(self, raw: bytes, is_text: bool) -> None:
        """Most messages are answered at once; one that must wait, and all behind it, go through the worker."""
        self._gateway.traffic.received += 1
        if self._worker is None and self.outbound.has_room:
            waiting = self._handle(raw, is_text)
            if waiting is not None:
                self._worker = self._gateway.tasks.start(self._work(waiting), "worker")
            return
        self._inbound.append((raw, is_text))
        self._inbound_bytes += len(raw)
        limits = self._gateway.limits
        most = limits.inbound_frames if self.authenticated else limits.waiting_frames
        if len(self._inbound) >= most or self._inbound_bytes >= limits.inbound_bytes:
            self._socket.pause()
        if self._worker is None:
            self._worker = self._gateway.tasks.start(self._work(None), "worker")

    def _handle(self, raw: bytes, is_text: bool) -> Awaitable[None] | None:
        """What is left to wait for, if anything."""
        match self._link.receive(raw, self._gateway.clock.monotonic(), is_text=is_text):
            case Deliver(frame):
                return self._deliver(frame)
            case Verify(frame):
                return self._authenticate(frame)
            case Refuse(error, ref):
                self.outbound.send(refusal(error, ref))
                self._gateway.calls.unreadable(self, raw)
            case Close(code, reason, error, ref):
                if error is not None:
                    self.outbound.send(refusal(error, ref))
                self.end(code, reason)
        return None

    def _deliver(self, frame: Envelope) -> Awaitable[None] | None:
        try:
            waiting = self._gateway.dispatch(frame, self)
        except Exception as exc:
            self._failed(frame, exc)
            return None
        return None if waiting is None else self._finish(waiting, frame)

    async def _finish(self, waiting: Awaitable[None], frame: Envelope) -> None:
        try:
            await waiting
        except Exception as exc:
            self._failed(frame, exc)

    def _failed(self, frame: Envelope, exc: Exception) -> None:
        if not isinstance(exc, RelayError):
            log.error("a handler failed", extra={"link": self.link_id, "type": frame.type}, exc_info=exc)
            exc = RelayError("the relay failed on this frame")
        self.outbound.send(refusal_to(self, exc, frame))
        self._gateway.calls.refused(self, frame, exc)

    async def _work(self, waiting: Awaitable[None] | None) -> None:
        while not self.closed:
            if waiting is not None:
                await waiting
            await self.outbound.room()
            if not self._inbound:
                break
            raw, is_text = self._inbound.popleft()
            self._inbound_bytes -= len(raw)
            if not self._inbound:
                self._socket.resume()
            waiting = self._handle(raw, is_text)
        self._worker = None

    async def _authenticate(self, frame: Envelope) -> None:
        admission = await self._gateway.admit(frame, self)
        if admission is None or self._closing or self.closed:
            return  # a link that joined the others after its end would never leave them
        self.principal, self.grants = admission.principal, admission.principal.grants
        self.instance, self.supports = admission.instance, admission.supports
        self.bearer = None
        self._socket.raise_limit(MAX_MESSAGE)
        self._link.opened()
        self._pump = self._gateway.opened(self, admission, frame)
        if self._pump is not None:
            self._pump.begin(is_current=admission.is_current)

    # the end

    def _ended(self) -> None:
        self.closed = True
        if self._deadline is not None:
            self._deadline.cancel()
        self.clean = self._socket.close_code in (close.NORMAL, close.GOING_AWAY)
        self._link.closed()
        if self._socket.exceeded:
            self._gateway.calls.exceeded(self)
        self._inbound.clear()
        self.outbound.close()
        self._gateway.closed(self)
        callbacks, self._on_close = self._on_close, []
        for callback in callbacks:
            callback(self.clean)
