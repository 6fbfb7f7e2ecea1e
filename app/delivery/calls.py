"""Ask one device by a frame, and await its answer.

A call lives in memory until its deadline and is never kept. It goes to the link of the device that last said it takes
calls of that channel, and only that link may answer it. A device that sleeps is woken, and the call waits for it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.clock import Clock
from app.delivery.errors import CallTimeout, DeviceLeft, DeviceOffline, ResponseInvalid, ResponseTooLarge
from app.delivery.peer import Peer, granted
from app.errors import Draining, GrantMissing, Overloaded, RelayError
from app.wire.envelope import MAX_FRAME, Envelope, encode

MAX_ALL = 512  # calls at a time; what comes beyond is refused
MAX_OF_DEVICE = 64
RETURNS_S = 30.0  # a client whose link broke is back within its longest pause, 16 s, or not soon
LOOKED_AT = 4096  # bytes at each end of an answer that cannot be read: its id stands at one of them

Key = tuple[str, str]  # channel, device


def new_id() -> str:
    return secrets.token_hex(16)


def _wanted() -> bool:
    return True


@dataclass(slots=True, eq=False)
class _Call:
    id: str
    key: Key
    frame: bytes
    answer: asyncio.Future[Mapping[str, Any]]
    wanted: Callable[[], bool]
    timeout_s: float
    link: Peer | None = None  # that it was sent to

    def fail(self, error: RelayError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Calls:
    """`wake` pushes to a device that has no link, and says whether it could."""

    def __init__(self, clock: Clock, wake: Callable[[str], Awaitable[bool]]) -> None:
        self._clock, self._wake = clock, wake
        self._links: dict[Key, list[Peer]] = {}  # the one that takes calls is the last
        self._left: dict[Key, float] = {}  # when the last link went, monotonic
        self._calls: dict[str, _Call] = {}
        self._of_device: Counter[str] = Counter()
        self._draining = False

    def __len__(self) -> int:
        """Calls that wait for their answer."""
        return len(self._calls)

    # who can be asked

    def take(self, channel: str, peer: Peer) -> None:
        """From now on this link is the one of its device that takes the calls of a channel, and those that wait."""
        key = (channel, peer.device_id)
        links = self._links.setdefault(key, [])
        if peer in links:
            links.remove(peer)
        elif not peer.closed:
            peer.when_closed(lambda clean: self._closed(key, peer))
        links.append(peer)
        for call in list(self._calls.values()):
            if call.key == key and call.link is None:
                self._send(call, peer)

    def link(self, channel: str, device_id: str) -> Peer | None:
        """The link that takes calls now."""
        links = self._links.get((channel, device_id))
        return links[-1] if links else None

    def _closed(self, key: Key, peer: Peer) -> None:
        links = self._links.get(key, [])
        if peer in links:
            links.remove(peer)
        if not links:
            self._links.pop(key, None)
            self._left[key] = self._clock.monotonic()
        for call in self._of(peer):
            call.fail(DeviceLeft())

    # asking

    async def ask(
        self, device_id: str, channel: str, type_: str, payload: Mapping[str, Any], *, timeout_s: float,
        id: str | None = None, wakes: bool = True, wanted: Callable[[], bool] = _wanted,
    ) -> Mapping[str, Any]:  # fmt: skip
        """The payload of the answer. The frame's payload gets `request_id`.

        Without a link it waits only for a device that could be woken, or has just left. `wanted` is asked again when
        such a device has come. Raises DeviceOffline, DeviceLeft, CallTimeout, ResponseTooLarge, ResponseInvalid,
        GrantMissing, Overloaded and Draining.
        """
        self._admit(device_id)
        loop = asyncio.get_running_loop()
        id = id or new_id()
        frame = encode(channel, type_, {"request_id": id, **payload}, id=id)
        call = _Call(id, (channel, device_id), frame, loop.create_future(), wanted, timeout_s)
        self._calls[id] = call
        self._of_device[device_id] += 1
        timer = loop.call_later(timeout_s, self._expire, call)
        try:
            link = self.link(channel, device_id)
            if link is not None:
                self._send(call, link)
            elif not wakes or not await self._may_come(call):
                call.fail(DeviceOffline())
            return await call.answer
        finally:
            timer.cancel()
            del self._calls[id]
            self._of_device[device_id] -= 1
            if not self._of_device[device_id]:
                del self._of_device[device_id]
            if call.answer.done() and not call.answer.cancelled():
                call.answer.exception()  # looked at, though what was waited for before may have failed

    def _admit(self, device_id: str) -> None:
        if self._draining:
            raise Draining(retry_after=3)
        if len(self._calls) >= MAX_ALL or self._of_device[device_id] >= MAX_OF_DEVICE:
            for call in self._calls.values():
                if not call.wanted():  # who asked has left: it makes room
                    call.fail(DeviceOffline("nobody waits for the answer any more"))
            raise Overloaded("this device is asked more than it has answered; wait for the answers")

    async def _may_come(self, call: _Call) -> bool:
        left = self._left.get(call.key)
        woken = await self._wake(call.key[1])
        return woken or call.link is not None or (left is not None and self._clock.monotonic() - left < RETURNS_S)

    def _send(self, call: _Call, link: Peer) -> None:
        if not granted(link.grants, call.key[0], self._clock.now()):
            call.fail(GrantMissing(f"{call.key[0]} is not granted to the device any more"))
        elif not call.wanted():
            call.fail(DeviceOffline("nobody waits for the answer any more"))
        elif not call.answer.done():
            call.link = link
            link.send(call.frame)

    def _expire(self, call: _Call) -> None:
        call.fail(DeviceOffline() if call.link is None else CallTimeout())

    # answers

    def answered(self, peer: Peer, request_id: str, payload: Mapping[str, Any]) -> bool:
        """False: nobody waits for this answer, or not from this link. Then it is ignored."""
        call = self._calls.get(request_id)
        if call is None or call.link is not peer or call.answer.done():
            return False
        call.answer.set_result(payload)
        return True

    def refused(self, peer: Peer, frame: Envelope, error: RelayError) -> None:
        """A frame was refused: if it was an answer, nobody need wait for it."""
        id = frame.payload.get("request_id")
        call = self._calls.get(id) if isinstance(id, str) else None
        if call is not None and call.link is peer:
            call.fail(error if isinstance(error, GrantMissing) else ResponseInvalid())

    def unreadable(self, peer: Peer, raw: bytes) -> None:
        """A frame could not be read. Too long, and without the id of a call at its ends, it may answer any of this
        link.
        """
        waiting, is_too_long = self._of(peer), len(raw) > MAX_FRAME
        if not waiting:
            return
        ends = raw[:LOOKED_AT] + raw[-LOOKED_AT:]
        named = [call for call in waiting if call.id.encode() in ends]
        for call in named or (waiting if is_too_long else []):
            call.fail(ResponseTooLarge() if is_too_long else ResponseInvalid())

    def exceeded(self, peer: Peer) -> None:
        """The link ends, for a message that no frame of its transport can be. Which call it answers nobody has read."""
        for call in self._of(peer):
            call.fail(ResponseTooLarge())

    def _of(self, peer: Peer) -> list[_Call]:
        return [call for call in self._calls.values() if call.link is peer]

    def drain(self) -> None:
        """Before a restart: nothing new. What was not sent yet is surely not done; the rest ends with its link."""
        self._draining = True
        for call in self._calls.values():
            if call.link is None:
                call.fail(Draining(retry_after=3))
