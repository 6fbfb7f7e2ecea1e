"""From a credential to who may speak, and to what `system/auth.ok` tells them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from app import __version__
from app.clock import Clock
from app.db import Database, Tx
from app.delivery.acks import Acks
from app.delivery.peer import granted
from app.errors import Draining, RelayError, StorageFull
from app.gateway.limits import Limits
from app.gateway.pump import Place, Position, locate
from app.outbox import store
from app.pairing.errors import ConfirmationPending
from app.pairing.service import Pairing
from app.sessions import opaque
from app.sessions.address import Address
from app.sessions.errors import SessionRefused
from app.sessions.guessing.attempts import Attempts
from app.sessions.renewals import Renewals
from app.sessions.service import Principal, Sessions
from app.sessions.tickets import Tickets
from app.wire import close
from app.wire.envelope import MAX_FRAME
from app.wire.payloads import Auth, Supports

KEPT_BYTES = 256 * 1024


class CredentialMissing(RelayError):
    """Neither a pairing code nor a token came with the authentication."""

    code = "credential_missing"
    http_status = 401
    close_code = close.CREDENTIAL_REFUSED


class WaitsElsewhere(RelayError):
    """A newer socket of the same device waits for the operator in place of this one."""

    code = "waits_elsewhere"
    http_status = 409
    close_code = close.SUPERSEDED


class TooManySockets(RelayError):
    """This device has as many sockets open as one may have."""

    code = "too_many_sockets"
    http_status = 429
    retryable = True
    close_code = close.TOO_SLOW


@dataclass(frozen=True, slots=True)
class Admission:
    principal: Principal
    instance: str | None
    supports: Supports
    place: Place
    start: Position | None  # None: the client does not acknowledge
    ok: dict[str, Any]  # payload of auth.ok
    changes: int  # how many changes of sessions the verdict takes into account
    is_current: bool = False  # nothing was kept for any device since `start` was read


@dataclass(frozen=True, slots=True)
class Facts:
    """What auth.ok says besides the session: asked of the rooms each time."""

    relay_id: str
    upstream: Callable[[], dict[str, Any]]
    profiles: Callable[[], list[dict[str, Any]]]
    turns: Callable[[str], list[dict[str, Any]]]  # of a device
    asks: Callable[[], tuple[list[dict[str, Any]], list[dict[str, Any]]]]  # approvals and questions, of all turns
    push: Callable[[Tx, str], dict[str, Any]]  # of a device


class Waiter(Protocol):
    """A link while the operator is asked about it."""

    @property
    def closed(self) -> bool: ...
    def pending(self, asked: ConfirmationPending) -> None:
        """Tell the client which digits the operator compares, and be patient."""

    def when_closed(self, callback: Callable[[bool], None]) -> None: ...


class Authenticator:
    def __init__(
        self, *, db: Database, clock: Clock, attempts: Attempts, sessions: Sessions, renewals: Renewals,
        tickets: Tickets, pairing: Pairing, acks: Acks, limits: Limits, facts: Facts,
    ) -> None:  # fmt: skip
        self._db, self._clock, self._limits = db, clock, limits
        self._attempts, self._sessions, self._pairing = attempts, sessions, pairing
        self._renewals, self._tickets = renewals, tickets
        self._acks, self._facts = acks, facts
        self._patient: dict[str, list[Waiter]] = {}  # offer → links that wait for the operator, the newest last

    async def authenticate(
        self, auth: Auth, address: Address, *, bearer: str | None = None, secure: bool, origin: str | None = None,
        waiter: Waiter | None = None,
    ) -> Admission:  # fmt: skip
        """`waiter` is a link that can wait for the operator's word; without one ConfirmationPending is raised.

        Raises what the credential deserves: close_code 4401 marks a bad one, anything else is not its fault.
        """
        changes = self._sessions.changes
        principal, tokens = await self._identify(auth, address, bearer, origin, waiter)
        place, start, push = await self._position(principal.device_id, auth)
        approvals, questions = self._asks(principal)
        ok = {
            **tokens, "server_version": __version__, "expires_at": principal.expires_at,
            "grants": dict(principal.grants), "transport_hint": principal.transport_hint or ("wss" if secure else "ws"),
            "profiles": self._facts.profiles(),
            "device_id": principal.device_id, "relay_id": self._facts.relay_id, "protocol": 1,
            "epoch": start.epoch, "head": start.head,
            "limits": {"frame_bytes": MAX_FRAME, "kept_bytes": KEPT_BYTES}, "heartbeat_s": self._limits.heartbeat_s,
            "upstream": self._facts.upstream(), "turns": self._facts.turns(principal.device_id),
            "approvals": approvals, "questions": questions, "push": push,
        }  # fmt: skip
        begins = start if auth.supports.delivery else None
        return Admission(principal, auth.instance, auth.supports, place, begins, ok, changes)

    def _asks(self, principal: Principal) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return self._facts.asks() if granted(principal.grants, "chat", self._clock.now()) else ([], [])

    async def _identify(
        self, auth: Auth, address: Address, bearer: str | None, origin: str | None, waiter: Waiter | None
    ) -> tuple[Principal, dict[str, str]]:
        """Who it is, and the tokens that auth.ok tells: the one it came with, or new ones."""
        if auth.pairing_code is not None:
            principal, made = await self._redeem(auth, address, waiter)
            return principal, {"session_token": made, "refresh_token": await self._renewals.first(principal)}
        token, refresh = auth.session_token or bearer, auth.refresh_token
        if token is not None and token.startswith(opaque.TICKET):
            # The token that the ticket was made with stays where it is: tickets keep it from sockets.
            return await self._tickets.take(token, origin, address), {}
        if token is not None and refresh is None:
            return await self._sessions.verify_from(token, address), {"session_token": token}
        if refresh is None:
            raise CredentialMissing()
        await self._attempts.admit_token(address)
        if token is not None:
            with suppress(SessionRefused):
                principal = await self._sessions.verify(token)
                await self._renewals.heard(principal, refresh)
                return principal, {"session_token": token}
        renewed = await self._renewals.renew(refresh, address, device_id=auth.device_id)
        return renewed.principal, {"session_token": renewed.token, "refresh_token": renewed.refresh_token}

    async def _redeem(self, auth: Auth, address: Address, waiter: Waiter | None) -> tuple[Principal, str]:
        """Once the operator has confirmed it, where a confirmation is wanted."""
        try:
            return await self._pairing.redeem(auth, address)
        except ConfirmationPending as exc:
            if waiter is None:
                raise
            pending = exc
        waiter.pending(pending)
        waiting = self._patient.setdefault(pending.offer_id, [])
        waiting.append(waiter)
        try:
            return await self._wait(auth, address, waiter, pending)
        finally:
            waiting.remove(waiter)
            if not waiting:
                del self._patient[pending.offer_id]

    async def _wait(
        self, auth: Auth, address: Address, waiter: Waiter, pending: ConfirmationPending
    ) -> tuple[Principal, str]:
        with self._pairing.watching(pending.offer_id) as changed:
            waiter.when_closed(lambda _clean: changed.set())
            while not waiter.closed:
                # An older one may be gone without the relay knowing, and must not take the code with it.
                if [one for one in self._patient[pending.offer_id] if not one.closed][-1] is not waiter:
                    raise WaitsElsewhere()
                changed.clear()  # before the look: what happens during it is not missed
                try:
                    return await self._pairing.redeem(auth, address)
                except ConfirmationPending:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(max(0.0, pending.expires_at - self._clock.now())):
                            await changed.wait()
        raise Draining()  # nobody is left to tell

    async def _position(self, device_id: str, auth: Auth) -> tuple[Place, Position, dict[str, Any]]:
        """A client that acknowledges joins those that everything is kept for. With how push to the device stands."""

        def look(tx: Tx) -> tuple[Place, Position, dict[str, Any]] | None:
            box = store.mailbox(tx, device_id)
            if box is None or (auth.supports.delivery and not box.listens):
                return None
            acked = self._acks.latest(device_id, box.epoch)
            start = locate(tx, device_id, box, acked, auth.resume)
            return Place(device_id, auth.instance), start, self._facts.push(tx, device_id)

        def enter(tx: Tx) -> tuple[Place, Position, dict[str, Any]] | None:
            store.open_mailbox(tx, device_id)
            if auth.supports.delivery:
                store.join_audience(tx, device_id)
            found = look(tx)
            if found is None or auth.instance is None:
                return found
            return Place(device_id, auth.instance, store.raise_generation(tx, device_id, auth.instance)), *found[1:]

        found = None
        if not auth.supports.delivery or auth.instance is None:  # else there is a generation to raise
            found = await self._db.read(look)
        if found is None:
            try:
                found = await self._db.write(enter)
            except StorageFull:  # what is stored can still be read, and acknowledged later
                found = await self._db.read(look)
                if found is None:
                    raise
        assert found is not None
        return found
