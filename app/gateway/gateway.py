"""All links of this node: admits them, bounds those without a credential, rechecks sessions, and drains."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import ValidationError

from app.channels.base import Dispatch, describe, refusal
from app.clock import Clock
from app.db import Database, Tx
from app.delivery.acks import Acks
from app.delivery.calls import Calls
from app.delivery.hub import Hub
from app.delivery.peer import Peer, granted
from app.errors import PayloadInvalid, RelayError
from app.gateway.auth import Admission, Authenticator, TooManySockets
from app.gateway.connection import Connection
from app.gateway.limits import Limits
from app.gateway.outbound import Traffic
from app.gateway.pump import Place, Position, Pump, Rooms, locate
from app.gateway.socket import Socket
from app.gateway.voices import Acknowledging, Older
from app.outbox import store
from app.pairing import confirm
from app.pairing.errors import ConfirmationPending
from app.sessions.address import Address
from app.sessions.service import Principal, Sessions
from app.tasks import Supervisor
from app.wire import close
from app.wire.envelope import Envelope, encode
from app.wire.payloads import Auth

log = logging.getLogger("talaria.gateway")

MARGIN_S = 10.0  # so that the offer's end, which says why, comes before the link's
RETRY_AFTER_MS = 3000  # what a draining relay tells clients: a restart takes about that
_DRAIN = encode("system", "drain", {"retry_after_ms": RETRY_AFTER_MS})


class PatientLink:
    """A link that waits for the operator's word. Implements auth.Waiter."""

    def __init__(self, link: Connection, ref: str | None) -> None:
        self._link, self._ref = link, ref
        self.when_closed = link.when_closed

    @property
    def closed(self) -> bool:
        return self._link.closed

    def pending(self, asked: ConfirmationPending) -> None:
        payload = {"confirm": asked.confirm, "expires_at": int(asked.expires_at)}
        self._link.send(encode("system", "auth.pending", payload, id=self._ref))
        self._link.wait_longer(confirm.LASTS_S + MARGIN_S)


class Gateway:
    def __init__(
        self, *, db: Database, clock: Clock, tasks: Supervisor, hub: Hub, acks: Acks, sessions: Sessions,
        dispatch: Dispatch, authenticator: Authenticator, limits: Limits, calls: Calls,
        attach: Sequence[Callable[[Peer], None]],
    ) -> None:  # fmt: skip
        """All of `attach` are called for each link once it has everything that was kept for it."""
        self.clock, self.tasks, self.limits, self.calls = clock, tasks, limits, calls
        self._db, self._hub, self._acks, self._sessions = db, hub, acks, sessions
        self._rooms = Rooms(db, clock, acks, tasks)
        self.dispatch, self._authenticator, self._attach = dispatch, authenticator, attach
        self._strangers: dict[int, Connection] = {}  # links without auth, oldest first
        self.draining = False
        self.traffic = Traffic()

    @property
    def strangers(self) -> int:
        """Links that have not said who they are."""
        return len(self._strangers)

    async def serve(
        self, socket: Socket, address: Address, bearer: str | None, *, secure: bool, origin: str | None = None
    ) -> None:
        """One accepted socket, until it is gone. `origin` of the page that opened it, None where none did."""
        connection = Connection(socket, self, address, bearer, secure=secure, origin=origin)
        self._make_room(address)
        self._strangers[connection.link_id] = connection
        await connection.run()

    # admitting

    async def admit(self, frame: Envelope, link: Connection) -> Admission | None:
        """None: refused, told so, and closing."""
        try:
            auth = Auth.model_validate(frame.payload)
        except ValidationError as exc:
            link.send(refusal(PayloadInvalid(describe(exc)), frame.id))
            link.end(close.PROTOCOL_BROKEN, PayloadInvalid.code)
            return None
        rings = self._hub.rings
        try:
            admission = await self._authenticator.authenticate(
                auth, link.address, bearer=link.bearer, secure=link.secure, origin=link.origin,
                waiter=PatientLink(link, frame.id),
            )  # fmt: skip
            self._check_count(admission)
        except RelayError as exc:
            self._turn_away(link, frame, exc)
            return None
        except Exception as exc:
            log.error("a link could not be admitted", extra={"link": link.link_id}, exc_info=exc)
            self._turn_away(link, frame, RelayError("the relay failed on this link"))
            return None
        # No bell since: what was read of the mailbox still holds, and need not be read again.
        return replace(admission, is_current=rings == self._hub.rings)

    def _turn_away(self, link: Connection, frame: Envelope, exc: RelayError) -> None:
        log.info("refused a link", extra={"link": link.link_id, "code": exc.code, "address": link.address.host})
        if exc.close_code == close.CREDENTIAL_REFUSED:
            link.send(encode("system", "auth.fail", {"reason": exc.message, "code": exc.code}, id=frame.id))
        else:
            link.send(refusal(exc, frame.id))
        link.end(exc.close_code or close.TROUBLE, exc.code)

    def _check_count(self, admission: Admission) -> None:
        if admission.instance is not None:
            return
        who = admission.principal
        peers = self._hub.of_device(who.device_id)
        # Those of its other sessions are being closed: it has been paired again, and its code is used up by now.
        if sum(p.instance is None and p.session_id == who.session_id for p in peers) >= self.limits.plain_per_device:
            raise TooManySockets()

    def opened(self, link: Connection, admission: Admission, frame: Envelope) -> Pump | None:
        """The link joins the others, is told so, and gets what was kept."""
        self._strangers.pop(link.link_id, None)
        self._hub.join(link)
        if admission.changes != self._sessions.changes:  # this session may have ended before it could be found here
            self.tasks.start(self.recheck(), "recheck")
        link.send(encode("system", "auth.ok", admission.ok, id=frame.id))
        if self.draining:
            link.send(_DRAIN)
        if admission.start is None:
            self._caught_up(link)
            return None
        return Pump(
            admission.place, admission.start, self._rooms, link.outbound, Acknowledging(),
            caught_up=lambda: self._caught_up(link), shows=lambda: self._may_read(link),
        )  # fmt: skip

    async def subscribe(self, link: Connection, before: Pump | None) -> Pump:
        """For an older client: messages from its last acknowledgement on. The last socket that asks gets them.

        A link that had subscribed `before` goes on after what it was sent: it is on its way, confirmed or not.
        """
        device_id = link.device_id

        def enter(tx: Tx) -> Position:
            store.join_audience(tx, device_id, "messages")
            box = store.mailbox(tx, device_id)
            assert box is not None
            return locate(tx, device_id, box, self._acks.latest(device_id, box.epoch), None)

        start = await self._db.write(enter)
        for other in self._hub.of_device(device_id):
            if other is not link:
                other.unsubscribe()
        voice = Older(start.head, self.clock)
        if before is not None and before.go_on(start, voice):
            return before
        return Pump(
            Place(device_id), start, self._rooms, link.outbound, voice,
            caught_up=lambda: None, shows=lambda: self._may_read(link),
        )  # fmt: skip

    def _caught_up(self, link: Connection) -> None:
        for attach in self._attach:
            attach(link)

    def _may_read(self, link: Connection) -> bool:
        """All kinds that are kept are of conversations."""
        return granted(link.grants, "chat", self.clock.now())

    def closed(self, link: Connection) -> None:
        self._strangers.pop(link.link_id, None)
        if link.authenticated:
            self._hub.leave(link)

    def _make_room(self, address: Address) -> None:
        if not address.may_be_many:
            same = [c for c in self._strangers.values() if c.address.key == address.key]
            if len(same) >= self.limits.unauthenticated_per_address:
                self._drop_stranger(same[0])
        if len(self._strangers) >= self.limits.unauthenticated:
            self._drop_stranger(next(iter(self._strangers.values())))

    def _drop_stranger(self, link: Connection) -> None:
        self._strangers.pop(link.link_id, None)
        link.end(close.AUTH_TIMEOUT, "too many sockets without auth")

    # looking after open links

    async def recheck_forever(self) -> None:
        while True:
            await asyncio.sleep(self.limits.recheck_seconds)
            try:
                await self.recheck()
            except Exception as exc:  # whatever it is: without this, sessions would never end on open links
                log.error("sessions could not be rechecked", exc_info=exc)

    async def recheck(self) -> None:
        """One query for the sessions of all open links: the ended ones close, changed grants take effect."""
        verdicts = await self._sessions.recheck({peer.session_id for peer in self._hub})
        for peer in self._hub:
            verdict = verdicts.get(peer.session_id)
            if isinstance(verdict, Principal):
                peer.regrant(verdict.grants)
            elif verdict is not None:
                peer.end(close.CREDENTIAL_REFUSED, verdict.code)

    async def drain(self) -> None:
        """Before a restart: no new links, tell the open ones, let their queues empty. Stops no turn."""
        self.draining = True
        links = [peer for peer in self._hub if isinstance(peer, Connection)]
        for link in links:
            link.send(_DRAIN)
        if links:
            flushing = [self.tasks.start(link.outbound.flush(), "flush") for link in links]
            await asyncio.wait(flushing, timeout=self.limits.drain_seconds)
        await self._acks.flush()
