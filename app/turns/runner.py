"""All turns of this node: accepts them once, runs them in order, shows them to who watches, and knows their ends."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Any

from app.approvals.service import Approvals
from app.clock import Clock, Sleep
from app.db import Database, Tx
from app.delivery.peer import Peer
from app.errors import RelayError
from app.hermes.dashboard.dashboard import Listen
from app.hermes.hermes import Hermes
from app.hermes.lease import MAX_SESSIONS, Lease
from app.hermes.listener import Listener
from app.once import store as once
from app.once.keys import Claim, key_of
from app.once.outward import Outward
from app.tasks import Supervisor
from app.turns import accepting, store
from app.turns.asking import Asking
from app.turns.course import Course
from app.turns.ends import Devices, Rooms, end_turn
from app.turns.errors import TurnKnown, TurnQueueFull, TurnUnknown
from app.turns.events import end_type
from app.turns.lanes import Lanes
from app.turns.pictures import Pictures, admit
from app.turns.recovery import recovered
from app.turns.turn import Bond, Turn
from app.turns.watching import Watching
from app.wire.envelope import encode
from app.wire.payloads import ChatSend

log = logging.getLogger("talaria.turns")

MAX_WAITING = 8  # in one session, behind the one that runs
MAX_OF_DEVICE = 64  # turns of one device that have not ended: far above what a person starts

Reply = Callable[[dict[str, Any]], None]


class Turns:
    """Bound to the event loop. Close it before what it uses."""

    def __init__(
        self, *, db: Database, clock: Clock, tasks: Supervisor, hub: Devices, hermes: Hermes,
        approvals: Approvals, outward: Outward, pictures: Pictures,
        approval_s: float = 60.0, sleep: Sleep = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._db, self._clock, self._hub, self._tasks = db, clock, hub, tasks
        self._rooms = Rooms(db, clock, tasks, hub, hermes, approvals, pictures, approval_s, sleep)
        self._outward = outward
        self._lanes = Lanes(tasks, self._run)
        self._live: dict[str, Turn] = {}
        self._overheard: dict[str, Course] = {}  # turns that Hermes began, until they are run
        self._devices: dict[str, str] = {}  # session → the device that last spoke there
        self._watching = Watching(self._live, clock)

    @property
    def ended(self) -> dict[str, int]:
        """How many turns have ended since the start, by `finish`."""
        return self._rooms.ended

    async def close(self) -> None:
        await self._lanes.close()

    # accepting

    async def send(self, peer: Peer, payload: ChatSend, frame_id: str | None, reply: Reply) -> None:
        """Store a turn and run it. `reply` gets the `chat.accepted` payload once it is stored, before any event.

        A copy with the same key gets the same answer and starts nothing. Raises TurnQueueFull, MessageTooLong,
        IdReused, StorageFull, and what Pictures does for media that it does not have.
        """
        accepting.check(payload)
        said = payload.model_dump(mode="json", exclude_none=True)
        turn = self._new(peer.device_id, payload.session_id, accepting.kept(said, frame_id))
        key = key_of("chat.send", said, frame_id)
        crowded = self._is_crowded(peer.device_id)

        def work(tx: Tx) -> None:
            if key is not None and (before := once.find(tx, peer.device_id, "chat.send", key, said)) is not None:
                tx.after_commit(lambda: reply(before))
                return
            if crowded:
                raise TurnQueueFull()
            admit(tx, self._rooms.pictures, said["message"])
            answer = self._accept(tx, turn, payload.client_msg_id)
            if key is not None:
                once.record(tx, peer.device_id, "chat.send", key, said, answer, turn.created_at)
            tx.after_commit(lambda: self._accepted(turn, peer, answer, reply))

        await self._db.write(work)

    def _accept(self, tx: Tx, turn: Turn, client_msg_id: str | None) -> dict[str, Any]:
        position = 0 if turn.session_id is None else store.ahead(tx, turn.session_id)
        if position > MAX_WAITING:
            raise TurnQueueFull()
        store.insert(tx, turn.turn_id, turn.device_id, turn.session_id, turn.message, turn.created_at)
        return {
            "client_msg_id": client_msg_id, "turn_id": turn.turn_id, "session_id": turn.session_id,
            "position": position,
        }  # fmt: skip

    def _accepted(self, turn: Turn, peer: Peer, answer: dict[str, Any], reply: Reply) -> None:
        """On the loop, after the commit; whoever sent the turn may be gone."""
        reply(answer)
        self._begin(turn)
        if not peer.supports.turns and peer.supports.typed_stream_events:
            self._watching.watch(peer, turn)

    async def pass_on(
        self, device_id: str, session_id: str, message: dict[str, Any], key: str | None, listener: Listener
    ) -> str:
        """Store a turn that came over Hermes' own API, as `accepting` keeps it, and run it. Its id.

        `listener` hears Hermes' answer while it stays. Raises TurnKnown for a copy with the same key, TurnQueueFull,
        IdReused, StorageFull.
        """
        turn = self._new(device_id, session_id, message)
        turn.listener = listener
        said, crowded = {"session_id": session_id} | message, self._is_crowded(device_id)

        def work(tx: Tx) -> None:
            if key is not None and once.find(tx, device_id, "chat.stream", key, said) is not None:
                raise TurnKnown()
            if crowded:
                raise TurnQueueFull()
            answer = self._accept(tx, turn, None)
            if key is not None:
                once.record(tx, device_id, "chat.stream", key, said, answer, turn.created_at)
            tx.after_commit(lambda: self._begin(turn))

        await self._db.write(work)
        return turn.turn_id

    def begun(self, lease: Lease, listen: Listen) -> None:
        """Hermes begins a turn by itself. It is that device's which last spoke there; without one it is not shown."""
        device_id = self._devices.get(lease.session_id)
        if device_id is None:
            return
        if self._is_crowded(device_id):
            log.warning("a turn that hermes began is not shown: too many run already")
            return
        turn = self._new(device_id, lease.session_id, {"message": ""})
        turn.bond = Bond(self._rooms.hermes.upstream(lease.route), lease)
        turn.submitted = turn.answered = True
        stored = turn.turn_id, device_id, turn.message, lease, turn.created_at
        self._overheard[turn.turn_id] = course = self._course(turn)
        self._tasks.start(self._db.write(lambda tx: store.begun(tx, *stored)), "turn begun")
        self._begin(turn)
        course.listen(listen)
        turn.watchers.resnapshot()  # nobody has heard of it

    def _begin(self, turn: Turn) -> None:
        self._remember(turn)
        turn.state.asks = lambda: self._rooms.approvals.of_turn(turn.turn_id)
        self._live[turn.turn_id] = turn
        self._watching.began(turn, self._hub.of_device(turn.device_id))
        self._lanes.enter(turn)

    def _new(self, device_id: str, session_id: str | None, message: dict[str, Any]) -> Turn:
        return Turn(
            f"turn-{uuid.uuid4().hex}", device_id, session_id, message,
            created_at=self._clock.now(), clock=self._clock, moved=self._moved,
        )  # fmt: skip

    # running

    async def _run(self, turn: Turn) -> None:
        try:
            await (self._overheard.pop(turn.turn_id, None) or self._course(turn)).run()
        finally:
            self._live.pop(turn.turn_id, None)

    def _course(self, turn: Turn) -> Course:
        return Course(turn, self._rooms, opened=self._opened, others=self._others)

    def _remember(self, turn: Turn) -> None:
        """Whose conversation it is, the latest first to be forgotten last."""
        if turn.session_id is not None:
            self._devices.pop(turn.session_id, None)
            self._devices[turn.session_id] = turn.device_id
            if len(self._devices) > MAX_SESSIONS:
                del self._devices[next(iter(self._devices))]

    def _others(self, turn: Turn) -> int:
        """How many run where this one does."""
        bonds = [other.bond for other in self._live.values() if other is not turn and other.bond is not None]
        return sum(turn.bond is None or bond.upstream is turn.bond.upstream for bond in bonds)

    def _opened(self, turn: Turn) -> None:
        self._remember(turn)
        self._lanes.adopt(turn, turn.state.session_id)

    def busy(self, session_id: str) -> bool:
        """Whether a turn of this conversation has not ended."""
        return any(turn.session_id == session_id for turn in self._live.values())

    def _moved(self, turn: Turn, old: str, new: str) -> None:
        """The conversation goes on in another session, and with it those who wait and those who watch."""
        self._remember(turn)
        for waiting in self._lanes.adopt(turn, new):
            waiting.bind(new)
        self._rooms.hermes.rows.forget(old)
        self._watching.moved(old, new)
        self._tasks.start(self._db.write(lambda tx: store.move(tx, old, new)), "turns move")

    # watching

    def attach(self, peer: Peer) -> None:
        """A link has what was kept for it: show it the turns its device began."""
        if peer.supports.turns:
            self._watching.attach(peer)

    async def watch(self, peer: Peer, session_id: str | None, turn_id: str | None, frame_id: str | None) -> None:
        """Raises TurnUnknown. Each running turn is answered by a snapshot, an ended one by its end."""
        if session_id is not None:
            self._watching.watch_session(peer, session_id, frame_id)
        if turn_id is None:
            return
        if (turn := self._live.get(turn_id)) is not None:
            self._watching.show(peer, turn, frame_id)
            return
        stored = await self._db.read(lambda tx: store.one(tx, turn_id))
        if (turn := self._live.get(turn_id)) is not None:
            self._watching.show(peer, turn, frame_id)
        elif stored is None or stored.progress is None or stored.finish is None:
            raise TurnUnknown()
        else:
            peer.send(encode("chat", end_type(stored.finish), stored.progress, id=frame_id))

    def unwatch(self, peer: Peer, session_id: str | None, turn_id: str | None) -> None:
        self._watching.unwatch(peer, session_id, self._live.get(turn_id or ""))

    def _is_crowded(self, device_id: str) -> bool:
        return len(self.running(device_id)) >= MAX_OF_DEVICE

    def running(self, device_id: str) -> list[dict[str, Any]]:
        """The turns this device began that have not ended, as `auth.ok` lists them."""
        return [
            {"turn_id": turn.turn_id, "session_id": turn.session_id, "n": turn.state.n}
            for turn in self._live.values()
            if turn.device_id == device_id
        ]

    # stopping

    async def stop(self, peer: Peer, turn_id: str, key: str | None) -> dict[str, Any]:
        """The `chat.stopped` payload. Raises TurnUnknown, and UpstreamError where Hermes could not be asked."""
        claim = Claim(peer.device_id, "chat.stop", key, {"turn_id": turn_id})
        turn = self._live.get(turn_id)
        if turn is not None and turn.bond is not None:
            return await self._outward.once(claim, lambda: self._interrupt(turn))
        if (answer := await self._outward.under_way(claim)) is not None:  # it has ended the turn, and waits for Hermes
            return answer
        return await self._db.write(
            lambda tx: once.settled(
                tx, claim, self._clock.now(), lambda: {"turn_id": turn_id} | self._stop(tx, turn_id)
            )
        )

    async def _interrupt(self, turn: Turn) -> dict[str, Any]:
        """How the turn ends, its stream will say."""
        answer = {"turn_id": turn.turn_id, "stopped": True}
        if turn.state.finish is not None:
            return answer | {"stopped": False, "reason": "the turn has ended"}
        before, turn.state.stopping = turn.state.stopping, True
        try:
            stopped = await turn.bound.upstream.stop(turn.bound.lease)
        except RelayError:
            turn.state.stopping = before
            raise
        if stopped:
            return answer
        turn.state.stopping = before
        return answer | {"stopped": False, "reason": "this Hermes cannot stop a turn that runs"}

    def _stop(self, tx: Tx, turn_id: str) -> dict[str, Any]:
        answer = {"turn_id": turn_id, "stopped": False}
        stored = store.one(tx, turn_id)
        if stored is None:
            raise TurnUnknown()
        if stored.state == "ended":
            return answer | {"reason": "the turn has ended"}
        if stored.state != "accepted":
            return answer | {"reason": "the turn is being handed to Hermes"}
        payload = {"turn_id": turn_id, "session_id": stored.session_id, "text": "", "finish": "stopped"}
        end_turn(tx, self._rooms, payload)
        tx.after_commit(lambda: self._stopped(turn_id, payload))
        return answer | {"stopped": True}

    def _stopped(self, turn_id: str, payload: dict[str, Any]) -> None:
        if (turn := self._live.pop(turn_id, None)) is not None:
            self._lanes.leave(turn)
            turn.finish("stopped")
            turn.watchers.ended(encode("chat", end_type("stopped"), payload, id=turn_id))

    # after a start

    async def recover(self) -> None:
        """Before serving: follow what was under way, for nothing is sent twice, and begin what was only accepted."""
        going_on = await self._db.write(lambda tx: recovered(tx, self._rooms, self._moved))
        self._rooms.approvals.abandon_others({turn.turn_id for turn in going_on})
        for turn in going_on:
            if turn.bond is not None:
                Asking(turn, self._rooms).adopt()
            self._begin(turn)
