"""All turns of this node: accepts them once, runs them in order, shows them to who watches, and knows their ends."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from app.clock import Clock
from app.db import Database, Tx
from app.delivery.peer import Peer
from app.hermes.hermes import Hermes
from app.once import store as once
from app.once.keys import key_of
from app.tasks import Supervisor
from app.turns import store
from app.turns.course import Course, Devices, Rooms, Sleep, end_turn
from app.turns.errors import MediaUnsupported, MessageTooLong, TurnExpired, TurnQueueFull, TurnUncertain, TurnUnknown
from app.turns.events import end_payload, end_type
from app.turns.lanes import Lanes
from app.turns.turn import Turn
from app.turns.watching import Watching
from app.wire.envelope import encode
from app.wire.payloads import ChatSend, MediaPart, TextPart

log = logging.getLogger("talaria.turns")

MAX_WAITING = 8  # in one session, behind the one that runs
MAX_OF_DEVICE = 64  # turns of one device that have not ended: far above what a person starts
MAX_TEXT = 65_536  # characters; Hermes cuts what is longer, without saying so
SEND_WITHIN_S = 600.0  # after a start of the relay, what was accepted earlier than this is not sent any more

Reply = Callable[[dict[str, Any]], None]


class Turns:
    """Bound to the event loop. Close it before what it uses."""

    def __init__(
        self, *, db: Database, clock: Clock, tasks: Supervisor, hub: Devices, hermes: Hermes,
        sleep: Sleep = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._db, self._clock, self._hub, self._tasks = db, clock, hub, tasks
        self._rooms = Rooms(db, clock, tasks, hub, hermes, sleep)
        self._lanes = Lanes(tasks, self._run)
        self._live: dict[str, Turn] = {}
        self._watching = Watching(self._live, clock)

    async def close(self) -> None:
        await self._lanes.close()

    # accepting

    async def send(self, peer: Peer, payload: ChatSend, frame_id: str | None, reply: Reply) -> None:
        """Store a turn and run it. `reply` gets the `chat.accepted` payload once it is stored, before any event.

        A copy with the same key gets the same answer and starts nothing. Raises TurnQueueFull, MessageTooLong,
        MediaUnsupported, IdReused, StorageFull.
        """
        _check(payload)
        said = payload.model_dump(mode="json", exclude_none=True)
        turn = self._new(f"turn-{uuid.uuid4().hex}", peer.device_id, payload.session_id, _kept(said, frame_id))
        key = key_of("chat.send", said, frame_id)
        crowded = len(self.running(peer.device_id)) >= MAX_OF_DEVICE

        def work(tx: Tx) -> None:
            if key is not None and (before := once.find(tx, peer.device_id, "chat.send", key, said)) is not None:
                tx.after_commit(lambda: reply(before))
                return
            if crowded:
                raise TurnQueueFull()
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

    def _begin(self, turn: Turn) -> None:
        self._live[turn.turn_id] = turn
        self._watching.began(turn, self._hub.of_device(turn.device_id))
        self._lanes.enter(turn)

    def _new(
        self, turn_id: str, device_id: str, session_id: str | None, message: Any, created_at: float | None = None
    ) -> Turn:
        created_at = self._clock.now() if created_at is None else created_at
        return Turn(
            turn_id, device_id, session_id, message, created_at=created_at, clock=self._clock, moved=self._moved
        )  # fmt: skip

    # running

    async def _run(self, turn: Turn) -> None:
        try:
            await Course(turn, self._rooms, self._opened).run()
        finally:
            self._live.pop(turn.turn_id, None)

    def _opened(self, turn: Turn) -> None:
        self._lanes.adopt(turn, turn.state.session_id)

    def busy(self, session_id: str) -> bool:
        """Whether a turn of this conversation has not ended."""
        return any(turn.session_id == session_id for turn in self._live.values())

    def _moved(self, turn: Turn, old: str, new: str) -> None:
        """The conversation goes on in another session, and with it those who wait and those who watch."""
        for waiting in self._lanes.adopt(turn, new):
            waiting.bind(new)
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

    def running(self, device_id: str) -> list[dict[str, Any]]:
        """The turns this device began that have not ended, as `auth.ok` lists them."""
        return [
            {"turn_id": turn.turn_id, "session_id": turn.session_id, "n": turn.state.n}
            for turn in self._live.values()
            if turn.device_id == device_id
        ]

    # stopping

    async def stop(self, peer: Peer, turn_id: str, key: str | None) -> dict[str, Any]:
        """The `chat.stopped` payload. Over the session stream only what waits can be stopped. Raises TurnUnknown."""
        said = {"turn_id": turn_id}

        def work(tx: Tx) -> dict[str, Any]:
            if key is not None and (before := once.find(tx, peer.device_id, "chat.stop", key, said)) is not None:
                return before
            answer = said | self._stop(tx, turn_id)
            if key is not None:
                once.record(tx, peer.device_id, "chat.stop", key, said, answer, self._clock.now())
            return answer

        return await self._db.write(work)

    def _stop(self, tx: Tx, turn_id: str) -> dict[str, Any]:
        stored = store.one(tx, turn_id)
        if stored is None:
            raise TurnUnknown()
        if stored.state == "ended":
            return {"stopped": False, "reason": "the turn has ended"}
        if stored.state != "accepted":
            return {"stopped": False, "reason": "this Hermes cannot stop a turn that runs"}
        payload = {"turn_id": turn_id, "session_id": stored.session_id, "text": "", "finish": "stopped"}
        end_turn(tx, self._hub.ring, payload, self._clock.now())
        tx.after_commit(lambda: self._stopped(turn_id, payload))
        return {"stopped": True}

    def _stopped(self, turn_id: str, payload: dict[str, Any]) -> None:
        if (turn := self._live.pop(turn_id, None)) is not None:
            self._lanes.leave(turn)
            turn.finish("stopped")
            turn.watchers.ended(encode("chat", end_type("stopped"), payload, id=turn_id))

    # after a start

    async def recover(self) -> None:
        """Before serving: end what was under way, for nothing is sent twice, and begin what was only accepted."""
        for stored in await self._db.write(self._end_what_was_open):
            self._begin(
                self._new(stored.turn_id, stored.device_id, stored.session_id, dict(stored.message), stored.created_at)
            )

    def _end_what_was_open(self, tx: Tx) -> list[store.StoredTurn]:
        now, still_good = self._clock.now(), []
        for stored in store.unended(tx):
            if stored.state == "accepted" and now - stored.created_at < SEND_WITHIN_S:
                still_good.append(stored)
                continue
            turn = self._new(stored.turn_id, stored.device_id, stored.session_id, dict(stored.message))
            turn.state.started_at = stored.created_at
            if stored.progress is not None:
                turn.state.text.add(stored.progress.get("text") or "")
            if stored.state == "accepted":
                turn.finish("failed", TurnExpired())
            else:
                turn.finish("uncertain", TurnUncertain())
            end_turn(tx, self._hub.ring, end_payload(turn.turn_id, turn.state, now), now)
            log.warning("a turn was cut off", extra={"turn": turn.turn_id, "was": stored.state})
        return still_good


def _check(payload: ChatSend) -> None:
    parts = payload.message if not isinstance(payload.message, str) else ()
    if any(isinstance(part, MediaPart) for part in parts):
        raise MediaUnsupported()
    if max(map(len, _texts(payload)), default=0) > MAX_TEXT:
        raise MessageTooLong(f"a message has at most {MAX_TEXT} characters")


def _texts(payload: ChatSend) -> Iterable[str]:
    if isinstance(payload.message, str):
        return (payload.message,)
    return (part.text for part in payload.message if isinstance(part, TextPart))


def _kept(said: dict[str, Any], frame_id: str | None) -> dict[str, Any]:
    kept = said | {"frame_id": frame_id}
    return {key: kept[key] for key in ("message", "model", "frame_id") if kept.get(key) is not None}
