"""Limits on guessing: wrong pairing codes and wrong tokens, counted by address in the database.

The database decides, in the transaction that also tries the code, so a burst of guesses gains nothing. Memory holds a
copy of the few addresses that have attempts or a block, so that an upgrade or a good token costs no query.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from app.clock import Clock
from app.db import Database, Tx
from app.errors import RateLimited, StorageFull
from app.sessions.address import Address
from app.sessions.guessing import store

log = logging.getLogger("talaria.sessions")

Kind = Literal["code", "token"]


@dataclass(frozen=True, slots=True)
class Limit:
    """`most` failures within `window` seconds block the address for `block` seconds."""

    most: int
    window: float
    block: float


# Somebody who types a code errs more often than a client that sends its token.
LIMITS: dict[str, Limit] = {"code": Limit(10, 60, 120), "token": Limit(5, 60, 300)}
# Wrong codes of all addresses together: so many are no typing errors, whoever sends them from wherever.
FLOOD, FLOOD_WINDOW = 100, 600.0
_EVERYBODY = ("codes", "")
_KEEP = max(limit.window for limit in LIMITS.values())
_REMEMBERED = 10_000  # addresses in memory; who has more to guess from must not fill it


class Attempts:
    """Only what matches nothing is a failure: an expired or revoked token of ours is none."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._counted: set[tuple[str, str]] = set()
        self._blocks: dict[tuple[str, str], float] = {}
        self._loaded = False

    async def blocked(self, kind: Kind, address: Address) -> int | None:
        """Seconds that this address is still blocked for, or None."""
        if not self._loaded:
            # What was committed meanwhile is in memory already, and newer than what was read.
            counted, blocks = await self._db.read(store.everything)
            self._counted |= counted
            self._blocks = blocks | self._blocks
            self._loaded = True
        if not self._blocks:
            return None
        until = self._blocks.get((kind, address.key))
        if until is None:
            return None
        left = self._left(kind, until)
        if left is None:
            del self._blocks[kind, address.key]
        return left

    def _left(self, kind: str, until: float) -> int | None:
        """Whole seconds. A block that is longer than blocks are is over: the clock has been set back."""
        left = until - self._clock.now()
        return math.ceil(left) if 0 < left <= LIMITS[kind].block else None

    async def admit_upgrade(self, address: Address) -> None:
        """Raises RateLimited. A block of either kind closes the door, but never on an address that may be many."""
        if not address.may_be_many:
            await self._refuse(("code", "token"), address)

    async def admit_token(self, address: Address) -> None:
        """Before a token is tried. Raises RateLimited."""
        if not address.may_be_many:
            await self._refuse(("token",), address)

    async def _refuse(self, kinds: tuple[Kind, ...], address: Address) -> None:
        waits = [wait for kind in kinds if (wait := await self.blocked(kind, address)) is not None]
        if waits:
            raise RateLimited(retry_after=max(waits))

    async def failed(self, kind: Kind, address: Address) -> None:
        """A token, or a code, that matches nothing. While blocked it costs no write."""
        if await self.blocked(kind, address) is None:
            await self._db.write(lambda tx: self.count(tx, kind, address))

    async def succeeded(self, kind: Kind, address: Address) -> None:
        """Forget this address's failures. Where others may share it, their failures stay."""
        if self._counted and not address.may_be_many and (kind, address.key) in self._counted:
            with suppress(StorageFull):  # a good token is good all the same
                await self._db.write(lambda tx: self.forget(tx, kind, address))

    # inside a work

    def admit_code(self, tx: Tx, address: Address) -> None:
        """Before a code is tried. Raises RateLimited, also for an address that may be many."""
        now = self._clock.now()
        blocks = store.blocks_of(tx, address.key, now)
        lasting = [
            left
            for kind, until in blocks.items()
            if (kind == "code" or not address.may_be_many) and (left := self._left(kind, until)) is not None
        ]
        if lasting:
            raise RateLimited(retry_after=max(lasting))

    def count(self, tx: Tx, kind: Kind, address: Address) -> None:
        limit, now, entry = LIMITS[kind], self._clock.now(), (kind, address.key)
        if store.count(tx, *entry, now=now, window=limit.window, keep=_KEEP, all_for=FLOOD_WINDOW) < limit.most:
            tx.after_commit(lambda: self._remember(entry))
        else:
            until = now + limit.block
            store.block(tx, *entry, until, now)
            tx.after_commit(self._remember_block(entry, until))

    def is_flood(self, tx: Tx) -> bool:
        """Count a wrong code for all addresses together. True: too many, and the count begins anew."""
        now = self._clock.now()
        if store.count(tx, *_EVERYBODY, now=now, window=FLOOD_WINDOW, keep=_KEEP, all_for=FLOOD_WINDOW) < FLOOD:
            return False
        store.forget(tx, *_EVERYBODY)
        return True

    def forget(self, tx: Tx, kind: Kind, address: Address) -> None:
        entry = (kind, address.key)
        store.forget(tx, *entry)
        tx.after_commit(lambda: self._counted.discard(entry))

    def lift(self, tx: Tx, kind: Kind) -> None:
        """For everybody: the operator is about to pair a phone."""
        store.lift(tx, kind)
        tx.after_commit(lambda: self._lifted(kind))

    def _remember(self, entry: tuple[Kind, str]) -> None:
        if len(self._counted) >= _REMEMBERED:
            self._counted.clear()  # they are forgotten a minute later anyway, unless the address blocks itself
        self._counted.add(entry)

    def _remember_block(self, entry: tuple[Kind, str], until: float) -> Callable[[], None]:
        def remember() -> None:
            self._counted.discard(entry)
            if len(self._blocks) >= _REMEMBERED:
                self._blocks = {e: end for e, end in self._blocks.items() if self._left(e[0], end) is not None}
            self._blocks[entry] = until
            kind, address = entry
            log.warning("too many wrong credentials", extra={"kind": kind, "address": address, "until": until})

        return remember

    def _lifted(self, kind: Kind) -> None:
        self._counted = {entry for entry in self._counted if entry[0] != kind}
        self._blocks = {entry: until for entry, until in self._blocks.items() if entry[0] != kind}
