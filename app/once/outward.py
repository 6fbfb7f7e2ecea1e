"""Effects outside the database, at most once per key: what is sent to an agent cannot be rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

from app.clock import Clock
from app.db import Database, Tx
from app.errors import IdReused, OutcomeUncertain, RelayError
from app.once import store
from app.once.keys import Claim
from app.tasks import Supervisor

Answer: TypeAlias = dict[str, Any]
Deed: TypeAlias = Callable[[], Awaitable[Answer]]


class Outward:
    """The claim is stored as pending before the deed, its answer after it.

    A copy that comes meanwhile waits for that answer. A claim that is found pending without anybody at work on it was
    cut off by a crash: nobody knows whether it happened, so it is never done again.
    """

    def __init__(self, db: Database, clock: Clock, tasks: Supervisor) -> None:
        self._db, self._clock, self._tasks = db, clock, tasks
        self._at_work: dict[tuple[str, str, str], tuple[str, asyncio.Task[Answer | RelayError]]] = {}

    async def once(self, claim: Claim, deed: Deed) -> Answer:
        """The deed's answer. It goes on when whoever asked goes away.

        A RelayError from `deed` says that nothing happened, and frees the key; OutcomeUncertain, or any other
        exception, that nobody knows. Raises IdReused, OutcomeUncertain and what `deed` raises.
        """
        if claim.key is None:
            return await deed()
        place = claim.principal, claim.type, claim.key
        if place not in self._at_work:
            work = self._tasks.start(self._do(claim, deed), claim.type)
            self._at_work[place] = store.fingerprint(claim.payload), work
            work.add_done_callback(lambda _: self._at_work.pop(place, None))
        return await self._answer(claim, *self._at_work[place])

    async def under_way(self, claim: Claim) -> Answer | None:
        """The answer to a copy that came before and is being worked on; None if there is no such. Raises as `once`."""
        work = self._at_work.get((claim.principal, claim.type, claim.key or ""))
        return None if work is None or claim.key is None else await self._answer(claim, *work)

    async def _answer(self, claim: Claim, said: str, work: asyncio.Task[Answer | RelayError]) -> Answer:
        if said != store.fingerprint(claim.payload):
            raise IdReused()
        result = await asyncio.shield(work)
        if isinstance(result, RelayError):
            raise result
        return result

    async def _do(self, claim: Claim, deed: Deed) -> Answer | RelayError:
        try:
            if (before := await self._db.write(lambda tx: self._claim(tx, claim))) is not None:
                return before
        except RelayError as exc:
            return exc
        try:
            answer = await deed()
        except OutcomeUncertain as exc:
            return exc
        except RelayError as exc:
            with suppress(RelayError):
                await self._db.write(lambda tx: store.forget(tx, claim))
            return exc
        with suppress(RelayError):  # it has happened; who asks again after this will hear that it is not known
            await self._db.write(lambda tx: store.fill(tx, claim, answer))
        return answer

    def _claim(self, tx: Tx, claim: Claim) -> Answer | None:
        assert claim.key is not None
        before = store.find(tx, claim.principal, claim.type, claim.key, claim.payload)
        if before is None:
            store.begin(tx, claim, self._clock.now())
        return before
