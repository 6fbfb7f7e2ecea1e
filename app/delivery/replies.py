"""What the owner answers to messages: stored before it is acknowledged, for the gateway where it is connected, and else
fetched by a tool on the host.

A reply is handed to one caller at a time and deleted once that caller's answer has been written. A crash between the
two hands it out again under the same `message_id`: twice is better than never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import orjson

from app.clock import Clock
from app.db import Database, Tx
from app.delivery import store
from app.delivery.errors import MessageTooBig, RepliesFull
from app.delivery.messages import Quota
from app.delivery.store import Reply
from app.once import store as once
from app.once.keys import Claim, key_of
from app.wire.payloads import ProactiveReply

MAX_BYTES = 256 * 1024  # of one reply
MAX_WAITING = 10_000
PAGE = 200
MAX_META_TEXT = 512  # characters; metadata is for small marks, and older tools take no more


Take = Callable[[Tx, str, ProactiveReply, float], None]  # in a work: device, reply, now


class Agent(Protocol):
    """Who takes replies at once, while it is there."""

    def taker(self) -> Take | None: ...


class Replies:
    """`agent` is set by the composition root."""

    agent: Agent | None = None

    def __init__(self, db: Database, clock: Clock, quota: Quota) -> None:
        self._db, self._clock, self._quota = db, clock, quota
        self._out: set[int] = set()  # handed to a caller whose answer is being written
        self._looking = asyncio.Lock()  # what is looked at while it is deleted would be handed out again
        self._bell = asyncio.Event()  # rung, and replaced, when there is something to fetch
        self._closed = False
        self.waiting = 0  # callers that wait for the next reply

    async def receive(self, device_id: str, said: ProactiveReply, frame_id: str | None) -> dict[str, Any]:
        """Keep it; returns the acknowledgement, the same for a copy. Raises MessageTooBig, RepliesFull, QuotaExceeded,
        IdReused.
        """
        self._quota.charge(device_id)
        now = self._clock.now()
        body = orjson.dumps({
            "text": said.text, "chat_id": said.chat_id, "reply_to": said.reply_to, "message_id": said.message_id,
            "metadata": _small(said.metadata or {}), "ts": int(now * 1000 if said.ts is None else said.ts),
        })  # fmt: skip
        if len(body) > MAX_BYTES:
            raise MessageTooBig(f"a reply has at most {MAX_BYTES} bytes")
        named = said.model_dump(include={"text", "chat_id", "reply_to", "message_id", "client_msg_id"})
        claim = Claim(device_id, "proactive.reply", key_of("proactive.reply", named, frame_id), named)

        take = None if self.agent is None else self.agent.taker()

        def work(tx: Tx) -> dict[str, Any]:
            def keep() -> dict[str, Any]:
                answer = {"client_msg_id": claim.key, "status": "received", "ts": int(now * 1000)}
                if take is not None:
                    take(tx, device_id, said, now)
                    return answer
                if store.count(tx) >= MAX_WAITING:
                    raise RepliesFull()
                store.insert(tx, device_id, body, now)
                tx.after_commit(self._ring)
                return answer

            return once.settled(tx, claim, now, keep)

        return await self._db.write(work)

    async def fetch(self, timeout_s: float) -> list[Reply]:
        """Those that wait, or the first to come within the time. Follow up with `done` or `release`."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            bell = self._bell  # before looking: what comes meanwhile is not missed
            if mine := await self._take():
                return mine
            if self._closed:
                return []
            self.waiting += 1
            try:
                async with asyncio.timeout_at(deadline):
                    await bell.wait()
            except TimeoutError:
                return []
            finally:
                self.waiting -= 1

    async def _take(self) -> list[Reply]:
        async with self._looking:
            found = await self._db.read(partial(store.waiting, limit=PAGE + len(self._out)))
            mine = [reply for reply in found if reply.id not in self._out]
            self._out.update(reply.id for reply in mine)
            return mine

    async def done(self, replies: Sequence[Reply]) -> None:
        """They have been written to whoever fetched them."""
        ids = [reply.id for reply in replies]
        async with self._looking:
            try:
                await self._db.write(lambda tx: store.delete(tx, ids))
            finally:
                self._out.difference_update(ids)

    def release(self, replies: Sequence[Reply]) -> None:
        """Nobody was there to take them: the next caller gets them."""
        self._out.difference_update(reply.id for reply in replies)
        self._ring()

    def close(self) -> None:
        """The relay restarts: nobody waits any longer."""
        self._closed = True
        self._ring()

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()


def _small(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Scalars and flat lists of them, as the tools written for hermes-relay know it."""
    small: dict[str, Any] = {}
    for name, value in metadata.items():
        if isinstance(value, list):
            small[name] = [_cut(one) for one in value if _is_scalar(one)]
        elif _is_scalar(value):
            small[name] = _cut(value)
    return small


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _cut(value: Any) -> Any:
    return value[:MAX_META_TEXT] if isinstance(value, str) else value
