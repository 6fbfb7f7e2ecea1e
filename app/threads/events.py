"""What the frames of the agent link mean. A durable one has its effect and its number stored in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from app.clock import Clock
from app.db import Database, Tx
from app.delivery.messages import LINK, Messages
from app.errors import Overloaded, RelayError, StorageFailed, StorageFull
from app.hermes.link import codec
from app.hermes.link.codec import Done, Durable, Hello, Interrupted, Passing, Verdict
from app.hermes.link.connection import Spool
from app.tasks import Supervisor
from app.threads import policy, store
from app.threads.asks import LinkAsks
from app.threads.errors import ChatUnknown
from app.threads.lanes import Lanes
from app.threads.said import closed, kept_of, message_id, payload_of
from app.threads.store import Lane
from app.threads.streams import Draft, Streams

log = logging.getLogger("talaria.threads")

TWIN_S = 120.0  # in which Hermes says the same again: a failure of the model comes as a notice and as the answer

Json = dict[str, Any]
Files: TypeAlias = Callable[[Tx, Sequence[str]], list[Json]]  # tokens → {token, name, mime, size}; raises RelayError


@dataclass(frozen=True, slots=True)
class Seen:
    """What memory knows about a frame before the work that stores it: that may look at nothing but the database."""

    drafts: Sequence[Draft] = ()  # half-written messages that it may end besides its own
    is_bubble: bool = False  # it is another version of a progress bubble


class LinkEvents:
    """The handler of the link. Bound to the event loop."""

    def __init__(
        self, *, db: Database, clock: Clock, tasks: Supervisor, messages: Messages, streams: Streams, lanes: Lanes,
        asks: LinkAsks, files: Files,
    ) -> None:  # fmt: skip
        self._db, self._clock, self._tasks, self._messages = db, clock, tasks, messages
        self._streams, self._lanes, self._asks, self._files = streams, lanes, asks, files
        self.hello: Json | None = None  # what the plugin said of itself last
        self.known: set[str] = set()  # chats, but those with one device

    # the plugin comes and goes

    async def opened(self, hello: Hello) -> Spool:
        said = asdict(hello)

        def work(tx: Tx) -> tuple[int, list[Json]]:
            if hello.restarted:
                store.close_taken(tx)
            return store.hello(tx, hello.spool, said, self._clock.now())

        received, refused = await self._db.write(work)
        if hello.restarted:
            self._asks.gone()
        self.hello = said
        return Spool(received, refused)

    def welcomed(self, hello: Hello) -> None:
        self._asks.adopt()
        self._lanes.down()  # what the one before was given is given again
        self._lanes.up()

    def lost(self) -> None:
        self._lanes.down()
        self._streams.still()

    # what may be lost

    def passing(self, spool: str, frame: Passing) -> None:
        if isinstance(frame, codec.Taken):
            self._tasks.start(self._db.write(lambda tx: store.taken(tx, frame.inbound_id)), "inbound taken")
            return
        lane = _lane(frame)
        if lane.device_id is None and lane.chat_id not in self.known:
            return
        if isinstance(frame, codec.Typing):
            self._streams.typing(lane, on=frame.on)
            return
        id, text = message_id(spool, frame.local_id), policy.shown(frame.text)
        if isinstance(frame, codec.Progress) or (
            frame.reply_to is None and (self._streams.knows_bubble(id, lane) or policy.is_progress(text))
        ):
            self._progress(id, lane, text)
        elif text.strip() and not policy.may_be_silence(text):
            self._streams.update(id, lane, text, frame.reply_to)

    def _progress(self, id: str, lane: Lane, text: str) -> None:
        """Frames that may be lost may come late as well: what runs in a thread where nothing goes on is over."""
        self._streams.progress(id, lane, policy.steps(text))
        if not self._lanes.is_busy(lane) and not self._streams.is_typing(lane):
            self._streams.calm(lane)

    # what may not

    async def durable(self, spool: str, frame: Durable) -> Verdict:
        """What the relay fails on is refused for good: sent again, it would fail again."""
        try:
            return await self._durable(spool, frame)
        except (StorageFull, StorageFailed, Overloaded):
            raise
        except RelayError as exc:
            verdict = _refusal(exc)
        except Exception:
            log.exception("the relay failed on what the gateway said")
            verdict = _refusal(RelayError())
        await self._db.write(lambda tx: _settle(tx, spool, frame.n, verdict))
        return verdict

    async def _durable(self, spool: str, frame: Durable) -> Verdict:
        if isinstance(frame, codec.Ask | codec.AskClosed):
            await self._ask(spool, frame)
        seen = self._look(spool, frame)

        def work(tx: Tx) -> Verdict:
            received, refused = store.position(tx, spool)
            if frame.n <= received:
                return _again(spool, frame, refused)
            if frame.n > received + 1:
                log.warning("the plugin's numbers have a gap", extra={"n": frame.n, "received": received})
            verdict = self._apply(tx, spool, frame, seen)
            _settle(tx, spool, frame.n, verdict)
            return verdict

        return await self._db.write(work)

    async def _ask(self, spool: str, frame: codec.Ask | codec.AskClosed) -> None:
        """Before its number is stored: a copy is known by its own id."""
        received, _ = await self._db.read(lambda tx: store.position(tx, spool))
        if frame.n <= received:
            return
        if isinstance(frame, codec.AskClosed):
            await self._asks.closed(frame.ask_id)
        elif await self._db.read(lambda tx: store.exists(tx, frame.chat_id)):
            await self._asks.ask(frame)

    def _look(self, spool: str, frame: Durable) -> Seen:
        if isinstance(frame, codec.Message):
            lane = _lane(frame)
            own = message_id(spool, frame.local_id)
            if frame.reply_to is None:
                return Seen(is_bubble=frame.source == "reply" and self._streams.knows_bubble(own, lane))
            found = self._streams.answering(frame.reply_to)
            return Seen([one for one in found if one.lane == lane and one.message_id != own])
        if isinstance(frame, Interrupted):
            draft = self._streams.get(message_id(spool, frame.local_id))
            return Seen([] if draft is None else [draft])
        if isinstance(frame, Done) and frame.outcome != "success":
            return Seen(self._streams.answering(frame.inbound_id))
        return Seen()

    def _apply(self, tx: Tx, spool: str, frame: Durable, seen: Seen) -> Verdict:
        now = self._clock.now()
        if isinstance(frame, Done):
            self._done(tx, frame, seen.drafts, now)
        elif isinstance(frame, Interrupted):
            for draft in seen.drafts:
                self._close(tx, draft, now, interrupted=True)
        elif not isinstance(frame, codec.AskClosed):
            if not store.exists(tx, frame.chat_id):
                return _refusal(ChatUnknown())
            if isinstance(frame, codec.Message):
                return self._message(tx, spool, frame, seen, now)
        return Verdict()

    def _done(self, tx: Tx, frame: Done, drafts: Sequence[Draft], now: float) -> None:
        for draft in drafts:
            self._close(tx, draft, now, interrupted=True)
        lane = store.through(tx, frame.inbound_id)
        if lane is not None:
            tx.after_commit(lambda: self._through(lane, frame.inbound_id))

    def _through(self, lane: Lane, inbound_id: str) -> None:
        if self._lanes.through(lane, inbound_id):
            self._streams.calm(lane)

    # a message

    def _message(self, tx: Tx, spool: str, frame: codec.Message, seen: Seen, now: float) -> Verdict:
        lane = _lane(frame)
        id, text = message_id(spool, frame.local_id), policy.shown(frame.text)
        if not frame.media and (seen.is_bubble or _is_progress(frame, text)):
            tx.after_commit(lambda: self._progress(id, lane, text))
            return Verdict()
        if not frame.media and (not text.strip() or policy.is_silence(text)):
            self._end(tx, id, lane)
            return Verdict()
        try:
            media = self._files(tx, frame.media) if frame.media else []
        except RelayError as exc:
            return _refusal(exc)
        said = payload_of(frame, id, lane, text, media, now)
        if (before := store.message(tx, id)) is not None:
            self._again(tx, lane, before, said, frame, now)
            return Verdict(id)
        if (twin := _twin(tx, lane, said, now)) is not None:
            self._end(tx, id, lane)
            return Verdict(twin)
        for draft in seen.drafts:  # an edit failed, and the rest comes as a new message: or all of it, again
            if text.startswith(draft.text):
                self._end(tx, draft.message_id, lane)
            else:
                self._close(tx, draft, now)
        store.add(tx, lane, id, frame.source, said, now)
        self._messages.keep(tx, kept_of(said, lane, frame.source), sender=LINK, now=now)
        self._end(tx, id, lane)
        return Verdict(id)

    def _again(self, tx: Tx, lane: Lane, before: Json, said: Json, frame: codec.Message, now: float) -> None:
        """Hermes finalises an answer twice. What is the same is not said again; a change is, and wakes nobody."""
        said = said | {"sent_at": before["sent_at"]}
        if before == said:
            return
        if all(before.get(name) == said.get(name) for name in ("text", "media", "reasoning")):
            return
        said["edited"] = True
        store.replace(tx, said["message_id"], said)
        kept = kept_of(said, lane, frame.source, wake=False)
        self._messages.keep(tx, kept, sender=LINK, now=now, frame_id=f"{said['message_id']}.{frame.n}")

    def _close(self, tx: Tx, draft: Draft, now: float, *, interrupted: bool = False) -> None:
        """As it stands."""
        if store.message(tx, draft.message_id) is None:
            said = closed(draft, now, interrupted=interrupted)
            store.add(tx, draft.lane, draft.message_id, "reply", said, now)
            self._messages.keep(tx, kept_of(said, draft.lane, "reply"), sender=LINK, now=now)
        self._end(tx, draft.message_id, draft.lane)

    def _end(self, tx: Tx, id: str, lane: Lane) -> None:
        """It is not written any more."""
        store.drop_draft(tx, id)
        tx.after_commit(lambda: self._streams.end(id))
        tx.after_commit(lambda: self._streams.calm(lane))

    # what nobody has ended

    async def close_stale(self, before: float) -> None:
        """Half-written messages that nothing was heard of for long."""
        for draft in self._streams.stale(before):
            await self._db.write(lambda tx, d=draft: self._close(tx, d, self._clock.now(), interrupted=True))  # type: ignore[misc]


def _lane(frame: codec.Message | codec.Update | codec.Progress | codec.Typing) -> Lane:
    return Lane(frame.chat_id, frame.thread_id or "")


def _is_progress(frame: codec.Message, text: str) -> bool:
    return frame.source == "reply" and frame.reply_to is None and policy.is_progress(text)


def _settle(tx: Tx, spool: str, n: int, verdict: Verdict) -> None:
    """It has its verdict."""
    _, refused = store.position(tx, spool)
    if verdict.code is not None:
        refused = [*refused, {"n": n, "code": verdict.code, "message": verdict.message}]
    store.advance(tx, spool, n, refused)


def _again(spool: str, frame: Durable, refused: Sequence[Json]) -> Verdict:
    """Of a frame that was taken before, and whose verdict did not arrive."""
    for one in refused:
        if one["n"] == frame.n:
            return Verdict(code=one["code"], message=one["message"])
    if isinstance(frame, codec.Message):
        return Verdict(message_id(spool, frame.local_id))
    return Verdict()


def _refusal(error: RelayError) -> Verdict:
    return Verdict(code=error.code, message=error.message)


def _twin(tx: Tx, lane: Lane, said: Json, now: float) -> str | None:
    """The notice that said the same just before."""
    last = store.last(tx, lane)
    if last is None:
        return None
    id, source, before, when = last
    has_files = "media" in said or "media" in before  # one after the other they are equal in all but that
    is_twin = source == "notice" and before["text"] == said["text"] and now - when < TWIN_S and not has_files
    return id if is_twin else None
