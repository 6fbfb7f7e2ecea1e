"""Claims overdue mailboxes and pushes for them: one push per burst to every target of the device.

Nothing here knows who is connected. A push is due because an acknowledgement is missing, whatever a socket looks like.
It needs no bell either: a waking frame is due no earlier than its grace after it was kept, so whoever looks that often
is never late, and keeping a frame costs nothing here.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import Counter
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
from app.push.answers import MAX_DETAIL, MAX_RETRY_AFTER_S, outcome
from app.push.notice import Content, Notice
from app.push.presence import FOREGROUND_S
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
        self.pushes: Counter[tuple[str, str]] = Counter()  # by provider and verdict, tests among them
        self.wakes: Counter[str] = Counter()  # mailboxes, by what came of them: pushed, failed, later, nothing
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
        if (due := await self._next_due(now)) is None or due > now:
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
        now = self._clock.now()
        due = await self._next_due(now)
        return GRACE_S if due is None else min(max(due - now, 0.0), GRACE_S)

    async def _next_due(self, now: float) -> float | None:
        return await self._db.read(lambda tx: wakes.next_due(tx, now, LEASE_S))

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
            self.wakes["nothing"] += 1
            return
        waits = case.wishes.waits_until(frames, now)
        if (foreground := _ahead(overdue.foreground_until, now, FOREGROUND_S)) is not None:
            waits = max(waits or 0.0, foreground)
        if waits is not None:
            seq = max(overdue.wake_seq, frames[0].seq)
            await self._db.write(lambda tx: wakes.later(tx, device, seq, waits, tried=False))
            self.wakes["later"] += 1
            return
        notice = await self._notice(frames, now)
        open_targets = [t for t in case.targets if t.settled < notice.head]
        ready = [t for t in open_targets if _ahead(t.not_before, now, MAX_RETRY_AFTER_S) is None]
        results = await asyncio.gather(*(self.push(target, notice) for target in ready))
        await self._db.write(lambda tx: self._conclude(tx, overdue, case.targets, notice, results))
        is_pushed = any(result.outcome.verdict is Verdict.SENT for result in results)
        self.wakes["pushed" if is_pushed else "failed" if results else "later"] += 1

    def _case(self, tx: Tx, overdue: Overdue, now: float) -> Case:
        device = overdue.device_id
        frames = wakes.unseen(tx, overdue, now, MAX_FRAMES) if store.may_read(tx, device, now) else ()
        return Case(frames, store.preferences(tx, device), store.active(tx, device, now))

    async def _notice(self, frames: Sequence[Unseen], now: float) -> Notice:
        body = None
        if self._content != "none":
            body = await self._db.read(lambda tx: store.body_of(tx, notices.chief(frames).id))
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
            not_before = self.not_before(result.outcome, overdue.tries)
            store.record(tx, target, notice, result.outcome, now=now, ms=result.ms, not_before=not_before)
            pushed = pushed or result.outcome.verdict is Verdict.SENT
            if not_before is not None:
                again.append(not_before)
        seq = max(overdue.wake_seq, notice.head)
        if again:
            wakes.later(tx, device, seq, min(again), tried=bool(results))
        else:
            wakes.done(tx, device, seq, pushed=pushed)

    def not_before(self, result: Outcome, tries: int) -> float | None:
        """When that target may be tried again; None: it is not to be, for this."""
        now = self._clock.now()
        if result.verdict is Verdict.BLOCKED:
            return now + BLOCKED_S
        if result.verdict is not Verdict.LATER:
            return None
        first, last = BACKOFF_S
        pause = min(first * 2.0 ** min(tries, 20), last) * (0.8 + 0.4 * self._jitter())
        return now + max(pause, result.retry_after or 0.0)

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
        self.pushes[target.provider, result.verdict.value] += 1
        result = replace(result, detail=clean_text(_without(target.endpoint, result.detail), MAX_DETAIL))
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


def _ahead(until: float | None, now: float, longest_s: float) -> float | None:
    """`until`, if it is to be waited for: one further ahead than it can be set is from a clock that was set back."""
    return until if until is not None and now < until <= now + longest_s else None


def _without(endpoint: str, said: str) -> str:
    """Also where only its secret part is repeated, or the whole in another spelling."""
    for secret in (endpoint, *re.findall(r"[\w-]{16,}", endpoint)):
        said = said.replace(secret, "…")
    return said


def _nothing(tx: Tx, overdue: Overdue, now: float) -> None:
    """Nothing is worth a push, or nothing could take one: a target that comes makes it due again."""
    store.retire_stale(tx, overdue.device_id, now)
    wakes.done(tx, overdue.device_id, overdue.wake_seq, pushed=False)
