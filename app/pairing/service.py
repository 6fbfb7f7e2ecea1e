"""How a phone becomes a device: the operator makes an offer, the phone redeems its code once.

How long the session lasts and what it may is the operator's to say, in the offer; what the phone asks for is not read.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.audit import store as audit
from app.clock import Clock
from app.db import Database, Tx
from app.errors import NotFound
from app.outbox import store as outbox
from app.pairing import codes, store
from app.pairing.errors import PairingCodeInvalid, PairingCodeRejected
from app.sessions import grants as rules
from app.sessions import store as devices
from app.sessions.address import Address
from app.sessions.attempts import Attempts
from app.sessions.service import Principal, Sessions
from app.wire.payloads import Auth

OFFER_S = 600  # a code is typed or scanned within minutes
_REMEMBERED_S = 86400  # used and expired offers, so that a late look at them has an answer
_NEVER_A_CODE = ""  # hashes to something, so that refusing nonsense takes as long as refusing a guess


@dataclass(frozen=True, slots=True)
class Offer:
    """What was minted. `grants`: seconds or None for never, all names; `ttl` None: never ends."""

    offer_id: str
    code: str
    expires_at: float
    ttl: int | None
    grants: rules.Seconds
    name: str | None


@dataclass(frozen=True, slots=True)
class Status:
    state: Literal["waiting", "redeemed", "expired"]
    expires_at: float
    device_id: str | None = None
    device_name: str | None = None


class Pairing:
    """Offers of this relay."""

    def __init__(self, db: Database, clock: Clock, sessions: Sessions, attempts: Attempts, data_dir: Path) -> None:
        self._db = db
        self._clock = clock
        self._sessions = sessions
        self._attempts = attempts
        self._hash = codes.CodeHash.load(data_dir)
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def mint(
        self,
        name: str | None = None,
        grants: rules.Seconds | None = None,
        *,
        ttl: int | Literal["default"] | None = "default",
        hint: str | None = None,
        actor: str = "operator",
    ) -> Offer:
        """An offer with a new code. `grants` None: the defaults, else exactly these. Raises GrantUnknown."""
        return await self._offer(codes.new_code(), name, grants, ttl, hint, actor)

    async def register(
        self,
        code: str,
        name: str | None = None,
        grants: rules.Seconds | None = None,
        *,
        ttl: int | Literal["default"] | None = "default",
        hint: str | None = None,
        actor: str = "operator",
    ) -> Offer:
        """An offer for a code that a host tool made. Raises PairingCodeInvalid, GrantUnknown."""
        return await self._offer(codes.normalise(code), name, grants, ttl, hint, actor)

    async def _offer(
        self,
        code: str,
        name: str | None,
        grants: rules.Seconds | None,
        ttl: int | Literal["default"] | None,
        hint: str | None,
        actor: str,
    ) -> Offer:
        seconds = self._sessions.default_ttl if ttl == "default" else ttl
        asked = None if grants is None else dict(rules.check(grants))
        offer_id, code_hash = secrets.token_hex(8), self._hash(code)

        def work(tx: Tx) -> Offer:
            now = self._clock.now()
            ends = now + OFFER_S
            store.purge(tx, now - _REMEMBERED_S)
            store.add(tx, code_hash, store.Stored(offer_id, name, asked, seconds, ends, None, None, hint), now)
            self._attempts.lift(tx, "code")
            audit.record(
                tx, at=now, actor=actor, action="offer.minted", subject=offer_id,
                name=name, ttl_seconds=seconds, grants=asked,
            )  # fmt: skip
            return Offer(offer_id, code, ends, seconds, rules.DEFAULT if asked is None else asked, name)

        return await self._db.write(work)

    async def redeem(self, auth: Auth, address: Address | None = None) -> tuple[Principal, str]:
        """The new session and its token; the device's older sessions end. Wrong codes are counted against `address`.

        Raises PairingCodeRejected, RateLimited.
        """
        try:
            code_hash = self._hash(codes.normalise(auth.pairing_code or ""))
        except PairingCodeInvalid:
            code_hash = self._hash(_NEVER_A_CODE)

        def work(tx: Tx) -> tuple[Principal, str] | None:
            if address is not None:
                self._attempts.admit_code(tx, address)
            device_id = auth.device_id or f"dev-{secrets.token_hex(8)}"
            now = self._clock.now()
            offer = store.take(tx, code_hash, device_id, now)
            if offer is None:
                if address is not None:
                    self._attempts.count(tx, "code", address)
                return None  # not raised here: the count must be committed
            if address is not None and not address.may_be_many:
                self._attempts.forget(tx, "code", address)
            return self._welcome(tx, offer, device_id, auth, now)

        redeemed = await self._db.write(work)
        if redeemed is None:
            raise PairingCodeRejected()
        return redeemed

    def _welcome(self, tx: Tx, offer: store.Stored, device_id: str, auth: Auth, now: float) -> tuple[Principal, str]:
        name = offer.name or auth.device_name or devices.device_name(tx, device_id) or auth.device_model or "device"
        devices.put_device(tx, device_id, name=name, about=_about(auth), now=now)
        outbox.open_mailbox(tx, device_id)
        principal, token = self._sessions.issue(
            tx, device_id, offer.grants, offer.ttl, now, replace=True, hint=offer.hint
        )
        audit.record(
            tx, at=now, actor=f"offer {offer.offer_id}", action="device.paired", subject=device_id,
            session=principal.prefix, name=name, expires_at=principal.expires_at, grants=dict(principal.grants),
        )  # fmt: skip
        tx.after_commit(lambda: self._wake(offer.offer_id))
        return principal, token

    # what became of an offer

    async def status(self, offer_id: str) -> Status:
        """Raises NotFound."""

        def work(tx: Tx) -> Status:
            offer = store.get(tx, offer_id)
            if offer is None:
                raise NotFound("there is no such offer")
            if offer.consumed_at is not None and offer.device_id is not None:
                name = devices.device_name(tx, offer.device_id)
                return Status("redeemed", offer.expires_at, offer.device_id, name)
            return Status("expired" if offer.expires_at <= self._clock.now() else "waiting", offer.expires_at)

        return await self._db.read(work)

    async def wait(self, offer_id: str, timeout: float) -> Status:
        """Its status once it is no longer waiting, or after `timeout` seconds. Raises NotFound."""
        redeemed = asyncio.Event()
        waiting = self._waiting.setdefault(offer_id, set())
        waiting.add(redeemed)  # before the first look, so that nothing is missed between the two
        try:
            status = await self.status(offer_id)
            left = min(timeout, status.expires_at - self._clock.now())
            if status.state != "waiting" or left <= 0:
                return status
            try:
                async with asyncio.timeout(left):
                    await redeemed.wait()
            except TimeoutError:
                pass
            return await self.status(offer_id)
        finally:
            waiting.discard(redeemed)
            if not waiting:
                self._waiting.pop(offer_id, None)

    def let_go(self) -> None:
        """Whoever waits gets the present status: the relay is about to end."""
        for offer_id in self._waiting:
            self._wake(offer_id)

    def _wake(self, offer_id: str) -> None:
        for redeemed in self._waiting.get(offer_id, ()):
            redeemed.set()


def _about(auth: Auth) -> Mapping[str, str]:
    said = {
        "model": auth.device_model, "platform": auth.device_platform,
        "surface": auth.client_surface, "form_factor": auth.device_form_factor,
    }  # fmt: skip
    return {name: value for name, value in said.items() if value}
