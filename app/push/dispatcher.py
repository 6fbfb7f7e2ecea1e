"""Claims overdue mailboxes and pushes for them: one push per burst to every target of the device.

Nothing here knows who is connected. A push is due because an acknowledgement is missing, whatever a socket looks like.
It needs no bell either: a waking frame is due no earlier than its grace after it was kept, so whoever looks that often
is never late, and keeping a frame costs nothing here.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from app.clock import Clock
from app.db import Database, Tx
from app.errors import RelayError
from app.logs.redaction import clean_text
from app.outbox import wakes
from app.outbox.store import GRACE_S
from app.outbox.wakes import Overdue, Unseen
from app.push import notice as notices
from app.push import store
from app.push.answers import MAX_DETAIL, outcome
from app.push.notice import Content, Notice
from app.push.provider import Outcome, PushProvider, Target, Verdict
from app.push.rules import Preferences
from app.tasks import Supervisor

log = logging.getLogger("talaria.push")

AT_ONCE = 8  # devices
LEASE_S = 45.0  # longer than three requests to one target may take, each shorter than the last
TIMEOUT_S = 10.0  # of one push
BACKOFF_S = (5.0, 3600.0)  # the first pause, doubled up to the last
BLOCKED_S = 3600.0  # what somebody has to repair is looked at again this often
MAX_FRAMES = 100  # one push counts no further


@dataclass(frozen=True, slots=True)
class Case:
    """All that is to be known to decide about one overdue mailbox."""

    frames: Sequence[Unseen]  # newest first
    wishes: Preferences
    targets: Sequence[Target]


class Dispatcher:
    """`jitter` gives numbers from 0 to 1: devices that failed together must not come back together."""

    def __init__(
        self, db: Database, clock: Clock, tasks: Supervisor, providers: Mapping[str, PushProvider], relay_id: str,
        content: Content, *, jitter: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self._db, self._clock, self._tasks = db, clock, tasks
        self._providers, self._relay_id, self._content = providers, relay_id, content
        self._jitter = jitter
        self._bell = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    def ring(self) -> None:
        """Something may be due sooner than it was."""
        self._bell.set()

    async def forever(self) -> None:
        while True:
            self._bell.clear()
            try:
                await self._start()
                pause = await self._pause()
            except RelayError as exc:
                log.warning("cannot look for overdue mailboxes", extra={"code": exc.code})
                pause = GRACE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._bell.wait()

    async def once(self) -> int:
        """Push for everything that is due now, and return when it is done: how many mailboxes that were."""
        count = 0
        while True:
            started = await self._start()
            if self._running:
                await asyncio.wait(self._running)
            elif not started:
                return count
            count += started

    async def _start(self) -> int:
        free = AT_ONCE - len(self._running)
        if free <= 0:
            return 0
        now = self._clock.now()
        if (due := await self._db.read(wakes.next_due)) is None or due > now:
            return 0
        claimed = await self._db.write(lambda tx: wakes.claim(tx, now, LEASE_S, free))
        for overdue in claimed:
            task = self._tasks.start(self._attend(overdue), "push")
            self._running.add(task)
            task.add_done_callback(self._attended)
        return len(claimed)

    def _attended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self.ring()

    async def _pause(self) -> float:
        """Real seconds until the next look."""
        if len(self._running) >= AT_ONCE:
            return GRACE_S  # each that ends rings
        due = await self._db.read(wakes.next_due)
        return GRACE_S if due is None else min(max(due - self._clock.now(), 0.0), GRACE_S)

    # one mailbox

    async def _attend(self, overdue: Overdue) -> None:
        try:
            await self._settle(overdue)
        except RelayError as exc:  # the lease runs out, and somebody looks again
            log.warning("a push could not be settled", extra={"device": overdue.device_id, "code": exc.code})

    async def _settle(self, overdue: Overdue) -> None:
        device, now = overdue.device_id, self._clock.now()
        case = await self._db.read(lambda tx: self._case(tx, overdue, now))
        frames = case.wishes.worth(case.frames)
        if not frames or not case.targets:
            await self._db.write(lambda tx: _nothing(tx, overdue, now))
            return
        waits = case.wishes.waits_until(frames, now)
        if overdue.foreground_until is not None and overdue.foreground_until > now:
            waits = max(waits or 0.0, overdue.foreground_until)
        if waits is not None:
            await self._db.write(lambda tx: wakes.later(tx, device, waits, tried=False))
            return
        notice = await self._notice(frames, now)
        open_targets = [t for t in case.targets if t.settled < notice.head]
        ready = [t for t in open_targets if (t.not_before or 0.0) <= now]
        results = await asyncio.gather(*(self.push(target, notice) for target in ready))
        await self._db.write(lambda tx: self._conclude(tx, overdue, case.targets, notice, results))

    def _case(self, tx: Tx, overdue: Overdue, now: float) -> Case:
        device = overdue.device_id
        frames = wakes.unseen(tx, overdue, now, MAX_FRAMES)
        return Case(frames, store.preferences(tx, device), store.active(tx, device, now))

    async def _notice(self, frames: Sequence[Unseen], now: float) -> Notice:
        body = None
        if self._content != "none":
            body = await self._db.read(lambda tx: store.body_of(tx, frames[0].id))
        return notices.of_frames(frames, body, self._content, self._relay_id, now)

    def _conclude(
        self, tx: Tx, overdue: Overdue, targets: Sequence[Target], notice: Notice, results: Sequence[Pushed]
    ) -> None:
        """Every outcome is kept. Targets that failed for now are tried again; those that were told are not."""
        now, device = self._clock.now(), overdue.device_id
        told = {result.target.target_id: result for result in results}
        again: list[float] = []
        pushed = False
        for target in targets:
            result = told.get(target.target_id)
            if result is None:
                pushed = pushed or target.settled >= notice.head
                if target.settled < notice.head and target.not_before is not None:
                    again.append(target.not_before)
                continue
            pause = self._pause_after(result.outcome, overdue.tries)
            not_before = None if pause is None else now + pause
            store.record(tx, target, notice, result.outcome, now=now, ms=result.ms, not_before=not_before)
            pushed = pushed or result.outcome.verdict is Verdict.SENT
            if not_before is not None:
                again.append(not_before)
        if again:
            wakes.later(tx, device, min(again), tried=bool(results))
        else:
            wakes.done(tx, device, max(overdue.wake_seq, notice.head), pushed=pushed)

    def _pause_after(self, result: Outcome, tries: int) -> float | None:
        """Seconds; None: not again."""
        if result.verdict is Verdict.BLOCKED:
            return BLOCKED_S
        if result.verdict is not Verdict.LATER:
            return None
        first, last = BACKOFF_S
        pause = min(first * 2.0 ** min(tries, 20), last) * (0.8 + 0.4 * self._jitter())
        return max(pause, result.retry_after or 0.0)

    # one target

    async def push(self, target: Target, notice: Notice) -> Pushed:
        """Never raises for what the other side does. What is too long is sent again with less in it."""
        began = self._clock.monotonic()
        result = await self._send(target, notice)
        while result.verdict is Verdict.SHRINK:
            smaller = notice.shrunk()
            if smaller is None:
                result = replace(result, verdict=Verdict.DROPPED)
                break
            notice = smaller
            result = await self._send(target, notice)
        detail = clean_text(result.detail.replace(target.endpoint, "…"), MAX_DETAIL)
        result = replace(result, detail=detail)
        if result.verdict is not Verdict.SENT:
            log.info(
                "a push was not taken",
                extra={
                    "device": target.device_id, "target": target.target_id, "provider": target.provider,
                    "code": result.code, "status": result.status,
                },
            )  # fmt: skip
        return Pushed(target, result, round((self._clock.monotonic() - began) * 1000))

    async def _send(self, target: Target, notice: Notice) -> Outcome:
        provider = self._providers.get(target.provider)
        if provider is None:
            return Outcome(Verdict.BLOCKED, "provider_off", "this relay does not push that way any more")
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await provider.send(target, notice, self._clock.now())
        except TimeoutError:
            return outcome("timeout", {})
        except Exception:
            log.exception("a push failed in the relay", extra={"provider": target.provider})
            return Outcome(Verdict.LATER, "internal_error", "the relay failed; its log says why")


@dataclass(frozen=True, slots=True)
class Pushed:
    target: Target
    outcome: Outcome
    ms: int


def _nothing(tx: Tx, overdue: Overdue, now: float) -> None:
    """Nothing is worth a push, or nothing could take one: a target that comes makes it due again."""
    store.retire_stale(tx, overdue.device_id, now)
    wakes.done(tx, overdue.device_id, overdue.wake_seq, pushed=False)
