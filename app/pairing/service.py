"""How a phone becomes a device: the operator makes an offer, the phone redeems its code once.

How long the session lasts and what it may is the operator's to say, in the offer; what the phone asks for is not read.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from app.audit import store as audit
from app.clock import Clock
from app.db import Database, Tx
from app.errors import NotFound
from app.outbox import store as outbox
from app.pairing import codes, confirm, store
from app.pairing.errors import (
    ConfirmationPending,
    ConfirmationUnknown,
    PairingCodeInvalid,
    PairingCodeRejected,
    PairingDenied,
)
from app.pairing.offers import OFFER_S, Offer, Status, Terms, Ttl
from app.pairing.watchers import Watchers
from app.sessions import grants as rules
from app.sessions import opaque
from app.sessions import store as devices
from app.sessions.address import Address
from app.sessions.guessing.attempts import FLOOD, Attempts
from app.sessions.service import Principal, Sessions
from app.wire.payloads import Auth

log = logging.getLogger("talaria.pairing")

_REMEMBERED_S = 86400  # used and expired offers, so that a late look at them has an answer
_NEVER_A_CODE = ""  # hashes to something, so that refusing nonsense takes as long as refusing a guess

Redeemed = tuple[Principal, str]


class Pairing:
    """Offers of this relay. `confirms`: the operator says yes to each device. `on_flood` runs after open offers were
    voided because somebody guesses.
    """

    def __init__(
        self, db: Database, clock: Clock, sessions: Sessions, attempts: Attempts, data_dir: Path, *,
        confirms: bool = False, on_flood: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._db = db
        self._clock = clock
        self._sessions = sessions
        self._attempts = attempts
        self._hash = codes.CodeHash.load(data_dir)
        self._confirms, self._on_flood = confirms, on_flood
        self._watchers = Watchers()
        self.watching = self._watchers.watching

    # making offers

    async def mint(
        self, name: str | None = None, grants: rules.Seconds | None = None, *,
        ttl: Ttl = "default", hint: str | None = None, actor: str = "operator",
    ) -> Offer:  # fmt: skip
        """An offer with a new code, for a client that can wait for a confirmation. Raises GrantUnknown."""
        approval = store.REDEEM if self._confirms else None
        return await self._offer(codes.new_code(), Terms(name, grants, ttl, hint), actor, approval)

    async def mint_for_peer(self, terms: Terms, *, api_token: bool, actor: str = "operator") -> Offer:
        """An offer for hermes-relay's clients: its code is as short as theirs are. Raises GrantUnknown."""
        token = opaque.new(opaque.API) if api_token else None
        return await self._offer(codes.new_code(codes.PEER_LENGTH), terms, actor, self._before(), token)

    async def register(
        self, code: str, name: str | None = None, grants: rules.Seconds | None = None, *,
        ttl: Ttl = "default", hint: str | None = None, actor: str = "operator",
    ) -> Offer:  # fmt: skip
        """An offer for a code that a host tool made. Raises PairingCodeInvalid, GrantUnknown."""
        return await self._offer(codes.normalise(code), Terms(name, grants, ttl, hint), actor, self._before())

    async def approve(self, code: str, terms: Terms, *, actor: str = "operator") -> Offer:
        """The operator says yes to an offer that waits for it, on its terms where `terms` names none; a code that
        was not registered is registered. Raises PairingCodeInvalid, GrantUnknown.
        """
        return await self._offer(codes.normalise(code), terms, actor, None, approves=True)

    def _before(self) -> str | None:
        """Clients that cannot wait: the operator says yes before they can come."""
        return store.BEFORE if self._confirms else None

    async def _offer(
        self, code: str, terms: Terms, actor: str, approval: str | None, token: str | None = None, *,
        approves: bool = False,
    ) -> Offer:  # fmt: skip
        asked = None if terms.grants is None else dict(rules.check(terms.grants))
        code_hash = self._hash(code)
        ttl = self._sessions.default_ttl if terms.ttl == "default" else terms.ttl
        made = store.Stored(
            secrets.token_hex(8), terms.name, asked, ttl, 0.0, hint=terms.hint,
            api_hash=None if token is None else opaque.digest(token), approval=approval,
        )  # fmt: skip

        def work(tx: Tx) -> Offer:
            now = self._clock.now()
            before = store.of_code(tx, code_hash) if approves else None
            offer = replace(made, expires_at=now + OFFER_S)
            if before is not None and before.approval == store.BEFORE and before.is_open(now):
                offer = _on_terms(before, terms, offer)
            store.purge(tx, now - _REMEMBERED_S)
            store.add(tx, code_hash, offer, now)
            self._attempts.lift(tx, "code")
            audit.record(
                tx, at=now, actor=actor, action="offer.approved" if approves else "offer.minted",
                subject=offer.offer_id, name=offer.name, ttl_seconds=offer.ttl, grants=offer.grants,
            )  # fmt: skip
            granted = rules.DEFAULT if offer.grants is None else offer.grants
            return Offer(
                offer.offer_id, code, offer.expires_at, offer.ttl, granted, offer.name, token, approval == store.BEFORE
            )

        return await self._db.write(work)

    # redeeming

    async def redeem(self, auth: Auth, address: Address | None = None) -> Redeemed:
        """The new session and its token; the device's older sessions end. Wrong codes are counted against `address`.

        Raises PairingCodeRejected, PairingDenied, RateLimited, and ConfirmationPending where the operator has to say
        yes: then the same client says the same again.
        """
        try:
            code_hash = self._hash(codes.normalise(auth.pairing_code or ""))
        except PairingCodeInvalid:
            code_hash = self._hash(_NEVER_A_CODE)
        outcome = await self._db.write(lambda tx: self._redeem(tx, auth, code_hash, address))
        if isinstance(outcome, tuple):
            return outcome
        raise outcome

    def _redeem(
        self, tx: Tx, auth: Auth, code_hash: str, address: Address | None
    ) -> Redeemed | PairingCodeRejected | ConfirmationPending:
        """Refusals are returned, not raised: the count must be committed."""
        if address is not None:
            self._attempts.admit_code(tx, address)
        now = self._clock.now()
        offer = store.of_code(tx, code_hash)
        claim = confirm.claim_of(auth, code_hash, address)
        if offer is None or not offer.is_open(now):
            if offer is not None and offer.claim == claim and offer.device_id is None:
                return PairingDenied()
            self._count_wrong(tx, address, now)
            return PairingCodeRejected()
        if offer.approval == store.BEFORE:
            return PairingCodeRejected("the operator has not approved this pairing code yet")
        if offer.approval == store.REDEEM and (refused := self._confirmation(tx, offer, auth, claim, address, now)):
            return refused
        device_id = auth.device_id or f"dev-{secrets.token_hex(8)}"
        if not store.take(tx, offer.offer_id, device_id, now):
            return PairingCodeRejected()
        if address is not None and not address.may_be_many:
            self._attempts.forget(tx, "code", address)
        return self._welcome(tx, offer, device_id, auth, now)

    def _confirmation(
        self, tx: Tx, offer: store.Stored, auth: Auth, claim: str, address: Address | None, now: float
    ) -> PairingCodeRejected | ConfirmationPending | None:
        """None: the operator has said yes to this device."""
        if offer.claim is None:
            claimant = confirm.about(auth) | ({"address": address.host} if address else {})
            asked = confirm.ask(tx, offer, claim, claimant, now)
            tx.after_commit(lambda: self._watchers.wake(offer.offer_id))
            return asked
        if offer.allowed:
            return None if offer.claim == claim else PairingCodeRejected()
        waits = confirm.still_asked(offer, now)
        if offer.claim == claim and waits is not None:
            return waits
        self._void(tx, offer.offer_id, "lost" if waits is not None else "late", now)
        return PairingDenied() if offer.claim == claim else PairingCodeRejected()

    def _count_wrong(self, tx: Tx, address: Address | None, now: float) -> None:
        if address is None:
            return
        self._attempts.count(tx, "code", address)
        if not self._attempts.is_flood(tx):
            return
        voided = store.void_open(tx, now)
        audit.record(tx, at=now, actor="relay", action="offers.voided", subject="wrong codes", offers=voided)
        tx.after_commit(lambda: self._flooded(voided))

    def _flooded(self, voided: Sequence[str]) -> None:
        log.error("somebody guesses pairing codes", extra={"wrong": FLOOD, "offers_voided": len(voided)})
        for offer_id in voided:
            self._watchers.wake(offer_id)
        self._on_flood()

    def _welcome(self, tx: Tx, offer: store.Stored, device_id: str, auth: Auth, now: float) -> Redeemed:
        name = offer.name or auth.device_name or devices.device_name(tx, device_id) or auth.device_model or "device"
        said = {key: value for key, value in confirm.about(auth).items() if key != "name"}
        devices.put_device(tx, device_id, name=name, about=said, now=now)
        outbox.open_mailbox(tx, device_id)
        principal, token = self._sessions.issue(
            tx, device_id, offer.grants, offer.ttl, now, replace=True, hint=offer.hint, api_hash=offer.api_hash
        )
        audit.record(
            tx, at=now, actor=f"offer {offer.offer_id}", action="device.paired", subject=device_id,
            session=principal.prefix, name=name, expires_at=principal.expires_at, grants=dict(principal.grants),
        )  # fmt: skip
        tx.after_commit(lambda: self._watchers.wake(offer.offer_id))
        return principal, token

    # confirming

    async def pending(self) -> Sequence[store.Stored]:
        """Offers that a device has redeemed and that wait for the operator."""
        return await self._db.read(lambda tx: store.pending(tx, self._clock.now()))

    async def confirm(self, digits: str, *, allow: bool, actor: str = "operator") -> str:
        """The offer that the operator said yes or no to. Raises ConfirmationUnknown."""

        def work(tx: Tx) -> str:
            now = self._clock.now()
            offer = store.by_confirm(tx, digits, now)
            if offer is None or confirm.still_asked(offer, now) is None:
                raise ConfirmationUnknown()
            if not allow:
                self._void(tx, offer.offer_id, "denied", now, actor)
                return offer.offer_id
            store.allow(tx, offer.offer_id)
            audit.record(
                tx, at=now, actor=actor, action="device.confirmed", subject=offer.offer_id, claimant=offer.claimant
            )
            tx.after_commit(lambda: self._watchers.wake(offer.offer_id))
            return offer.offer_id

        return await self._db.write(work)

    def _void(self, tx: Tx, offer_id: str, reason: str, now: float, actor: str = "relay") -> None:
        store.void(tx, offer_id, now)
        audit.record(tx, at=now, actor=actor, action="offer.voided", subject=offer_id, reason=reason)
        tx.after_commit(lambda: self._watchers.wake(offer_id))

    # what became of an offer

    async def status(self, offer_id: str) -> Status:
        """Raises NotFound."""

        def work(tx: Tx) -> Status:
            offer = store.get(tx, offer_id)
            if offer is None:
                raise NotFound("there is no such offer")
            now = self._clock.now()
            if offer.consumed_at is not None and offer.device_id is not None:
                return Status("redeemed", offer.expires_at, offer.device_id, devices.device_name(tx, offer.device_id))
            if not offer.is_open(now):
                return Status("expired", offer.expires_at)
            if offer.approval == store.BEFORE:
                return Status("approving", offer.expires_at)
            if offer.claim is not None and not offer.allowed:
                name = (offer.claimant or {}).get("name")
                return Status("confirming", offer.expires_at, device_name=name, confirm=offer.confirm)
            return Status("waiting", offer.expires_at)

        return await self._db.read(work)

    async def wait(self, offer_id: str, timeout: float, seen: str = "waiting") -> Status:
        """Its status once it is no longer `seen`, or after `timeout` seconds. Raises NotFound."""
        with self.watching(offer_id) as changed:  # before the first look, so that nothing is missed between the two
            status = await self.status(offer_id)
            left = min(timeout, status.expires_at - self._clock.now())
            if status.state != seen or left <= 0:
                return status
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await changed.wait()
            return await self.status(offer_id)

    def let_go(self) -> None:
        """Whoever waits gets the present status: the relay is about to end."""
        self._watchers.wake_all()


def _on_terms(before: store.Stored, terms: Terms, made: store.Stored) -> store.Stored:
    """An approved offer: what the operator names now, else what it was minted with."""
    return replace(
        before,
        approval=None,
        name=terms.name or before.name,
        grants=before.grants if terms.grants is None else made.grants,
        ttl=before.ttl if terms.ttl == "default" else made.ttl,
        hint=terms.hint or before.hint,
    )
