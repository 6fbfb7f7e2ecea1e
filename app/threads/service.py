"""Chats of Hermes' messaging gateway as devices use them: say something, read what was said, see what is unread."""

from __future__ import annotations

import asyncio
import logging
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import orjson

from app.approvals.service import Approvals
from app.clock import Clock, Sleep
from app.db import Database, Tx
from app.delivery.messages import Messages
from app.delivery.peer import Peer
from app.delivery.replies import Take
from app.errors import OutcomeUncertain, PayloadInvalid, RelayError
from app.hermes.link.line import AgentLink
from app.once import store as once
from app.once.keys import Claim, key_of
from app.tasks import Supervisor
from app.threads import store
from app.threads.asks import LinkAsks, Typed, lane_of
from app.threads.errors import ChatsFull, ChatUnknown, QueueFull
from app.threads.events import Files, LinkEvents
from app.threads.lanes import Lanes, is_at_once
from app.threads.store import HOME, Lane
from app.threads.streams import Streams
from app.wire.payloads import ProactiveReply
from app.wire.threads import MessageSend, ThreadsHistory, ThreadsList, ThreadsRead

log = logging.getLogger("talaria.threads")

MAX_WAITING = 10_000  # of one chat, for the gateway
MAX_CHATS = 256  # that devices and Hermes have made
CHECKPOINT_S = 2.0  # so often, at most, half-written messages are stored
FORGOTTEN_S = 900.0  # a half-written message that nothing was heard of for so long is closed
MAX_PAGE = 3 * 1024 * 1024  # bytes of one page of history: a frame has at most 4 MiB
MAX_LAST = 200  # characters of the newest message in a list of threads

Json = dict[str, Any]


class Threads:
    """Bound to the event loop. `files` describes media by their tokens."""

    def __init__(
        self, *, db: Database, clock: Clock, tasks: Supervisor, messages: Messages, approvals: Approvals,
        link: AgentLink, files: Files, sleep: Sleep = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._db, self._clock, self._tasks, self._link, self._sleep = db, clock, tasks, link, sleep
        self._files = files
        self._streams = Streams(clock, self._changed)
        self._lanes = Lanes(db, clock, tasks, link)
        self._asks = LinkAsks(approvals, link)
        self._events = LinkEvents(
            db=db, clock=clock, tasks=tasks, messages=messages, streams=self._streams, lanes=self._lanes,
            asks=self._asks, files=files,
        )  # fmt: skip
        link.handler = self._events
        self._checkpoint: asyncio.Task[None] | None = None

    async def recover(self) -> None:
        """Before serving, after the approvals have."""

        def work(tx: Tx) -> tuple[list[Json], Json | None, set[str]]:
            store.open_thread(tx, Lane(HOME), self._clock.now())
            for one in store.answering(tx):
                if self._asks.is_open(one.said.get("ask", "")):
                    store.set_state(tx, one.id, "queued", passes=True)  # Hermes takes it as the answer
                else:
                    store.through(tx, one.id)
            return store.drafts(tx), store.last_hello(tx), store.chat_ids(tx)

        drafts, hello, self._events.known = await self._db.write(work)
        self._streams.restore(drafts)
        self._events.hello, self._link.was_there = hello, hello is not None

    async def close(self) -> None:
        """What is half written is stored as it is."""
        if self._checkpoint is not None:
            self._checkpoint.cancel()
        try:
            await self._store_drafts()
        except RelayError as exc:
            log.warning("half-written messages are not stored", extra={"code": exc.code})

    def attach(self, peer: Peer) -> None:
        """A link has what was kept for it: show it what is under way."""
        self._streams.attach(peer)

    # the gateway

    def commands(self) -> list[Json]:
        """The gateway's slash commands {name, description, usage?}, as it told them last."""
        commands = (self._events.hello or {}).get("commands", ())
        return [{name: value for name, value in one.items() if value is not None} for one in commands]

    # saying

    async def send(self, peer: Peer, said: MessageSend, frame_id: str | None) -> Json:
        """The `message.accepted` payload, the same for a copy: it is stored.

        Raises ChatUnknown, ChatsFull, QueueFull, PayloadInvalid, IdReused, StorageFull.
        """
        if not said.text.strip() and not said.media:
            raise PayloadInvalid("text or media is needed")
        lane = Lane(said.chat_id, said.thread_id or "")
        if not lane.concerns(peer.device_id):
            raise ChatUnknown()
        body = said.model_dump(mode="json", exclude_none=True)
        claim = Claim(peer.device_id, "message.send", key_of("message.send", body, frame_id), body)
        is_up, now = self._link.is_up, self._clock.now()
        typed = None if said.media or not is_up else self._asks.typed(lane, said.text)
        at_once, is_busy = typed is None and is_at_once(said.text), self._lanes.is_busy(lane)

        def effect(tx: Tx) -> Json:
            media = self._files(tx, said.media) if said.media else []
            passes = at_once and (is_busy or store.runs(tx, lane))
            message = self._queue(tx, lane, said.text, media, said.reply_to, peer.device_id, now, typed, passes=passes)
            tx.after_commit(lambda: self._queued(lane, message, peer, typed, passes=passes))
            answer = {"client_msg_id": said.client_msg_id, "message_id": message["message_id"], **lane.as_json()}
            return answer | {"queued": not is_up}

        return await self._db.write(lambda tx: once.settled(tx, claim, now, lambda: effect(tx)))

    def taker(self) -> Take | None:
        """Takes replies of older clients, while the gateway is there."""
        if not self._link.is_up:
            return None
        questions = self._asks.questions()

        def take(tx: Tx, device_id: str, said: ProactiveReply, now: float) -> None:
            """To the chat that it names, or that of the message it replies to. Raises QueueFull, ChatsFull."""
            to = store.message(tx, said.reply_to) if said.reply_to else None
            lane = Lane(HOME) if to is None else Lane(to["chat_id"], to.get("thread_id") or "")
            if said.chat_id is not None and said.chat_id != lane.chat_id:
                lane = Lane(said.chat_id)
            if not lane.concerns(device_id):
                lane = Lane(HOME)
            asked = questions.get(lane_of(lane))
            typed = Typed("question", asked, said.text) if asked is not None else None
            message = self._queue(tx, lane, said.text, [], said.reply_to, device_id, now, typed, passes=False)
            tx.after_commit(lambda: self._queued(lane, message, None, typed, passes=False))

        return take

    def _queue(
        self, tx: Tx, lane: Lane, text: str, media: list[Json], reply_to: str | None, device_id: str, now: float,
        typed: Typed | None, *, passes: bool,
    ) -> Json:  # fmt: skip
        """In the history, and for the gateway. Returns the payload of its `message`."""
        if store.queued(tx, lane.chat_id) >= MAX_WAITING:
            raise QueueFull()
        if not store.exists(tx, lane.chat_id) and store.chats(tx) >= MAX_CHATS:
            raise ChatsFull()
        id = f"msg-{secrets.token_hex(12)}"
        heard: Json = {"text": text} | ({"reply_to": reply_to} if reply_to else {})
        heard |= {"media": media} if media else {}
        message = {"message_id": id, **lane.as_json(), **heard, "source": "device", "device_id": device_id}
        message["sent_at"] = now
        store.add(tx, lane, id, "device", message, now)
        if typed is None:
            store.queue(tx, lane, id, heard, now, passes=passes)
        else:
            store.queue(tx, lane, id, heard | {"ask": typed.id}, now, state="answering")
        return message

    def _queued(self, lane: Lane, message: Json, peer: Peer | None, typed: Typed | None, *, passes: bool) -> None:
        """The owner's other devices see it too, those that are there; the history has it for the others."""
        self._events.known.add(lane.chat_id)
        self._streams.tell(lane, "message", message, besides=peer)
        id: str = message["message_id"]
        if typed is not None:
            self._tasks.start(self._answer(lane, id, message["device_id"], typed), "typed answer")
        elif passes:
            self._tasks.start(self._pass_by(lane, id), "inbound passes")
        else:
            self._lanes.kick(lane)

    async def _pass_by(self, lane: Lane, id: str) -> None:
        waiting = await self._db.read(lambda tx: store.one_inbound(tx, id))
        if waiting is not None:
            self._lanes.pass_by(waiting)

    async def _answer(self, lane: Lane, id: str, device_id: str, typed: Typed) -> None:
        """What could not be the answer is a message like any other; Hermes itself may still take it as one."""
        try:
            await self._asks.answer(device_id, typed)
        except OutcomeUncertain:
            pass
        except RelayError as exc:
            log.info("a typed answer came too late", extra={"code": exc.code})
            passes = self._asks.is_open(typed.id) or (self._lanes.is_busy(lane) and typed.kind == "approval")
            await self._db.write(lambda tx: store.set_state(tx, id, "queued", passes=passes))
            if passes:
                await self._pass_by(lane, id)
            else:
                self._lanes.kick(lane)
            return
        await self._db.write(lambda tx: store.through(tx, id))

    # reading

    async def threads(self, device_id: str, asked: ThreadsList) -> Json:
        """{threads: [{chat_id, thread_id?, name, unread, updated_at, last?}], cursor?}, the newest first."""
        before = None if asked.cursor is None else _parse_cursor(asked.cursor)
        rows = await self._db.read(lambda tx: store.listed(tx, device_id, before, asked.limit + 1))
        shown = []
        for lane, _, opened_at, unread, last in rows[: asked.limit]:
            one = {**lane.as_json(), "name": "Home" if lane.chat_id == HOME else lane.chat_id, "unread": unread}
            one["updated_at"] = last["sent_at"] if last else opened_at
            shown.append(one | ({"last": _brief(last)} if last else {}))
        if len(rows) <= asked.limit:
            return {"threads": shown}
        lane, row, *_ = rows[asked.limit - 1]
        return {"threads": shown, "cursor": urlsafe_b64encode(orjson.dumps([row, *lane])).decode()}

    async def history(self, device_id: str, asked: ThreadsHistory) -> Json:
        """{chat_id, thread_id?, messages, cursor?}, the oldest of the page first; `cursor` leads to what is older.

        Raises ChatUnknown.
        """
        lane = Lane(asked.chat_id, asked.thread_id or "")
        before = None if asked.cursor is None else int(asked.cursor)

        def work(tx: Tx) -> list[tuple[int, Json]]:
            if not lane.concerns(device_id) or not store.exists(tx, lane.chat_id):
                raise ChatUnknown()
            return store.history(tx, lane, before, asked.limit + 1)

        rows = await self._db.read(work)
        page: list[tuple[int, Json]] = []
        size = 0
        for row, message in rows[: asked.limit]:
            size += len(orjson.dumps(message))
            if page and size > MAX_PAGE:
                break
            page.append((row, message))
        answer = {**lane.as_json(), "messages": [message for _, message in reversed(page)]}
        return answer | ({"cursor": str(page[-1][0])} if len(page) < len(rows) else {})

    async def read(self, device_id: str, asked: ThreadsRead) -> Json:
        """{chat_id, thread_id?, unread}. Raises ChatUnknown."""
        lane = Lane(asked.chat_id, asked.thread_id or "")

        def work(tx: Tx) -> int:
            if not lane.concerns(device_id) or not store.exists(tx, lane.chat_id):
                raise ChatUnknown()
            return store.read_up_to(tx, device_id, lane, asked.message_id)

        return {**lane.as_json(), "unread": await self._db.write(work)}

    # half-written messages

    def _changed(self) -> None:
        if self._checkpoint is None or self._checkpoint.done():
            self._checkpoint = self._tasks.start(self._store_later(), "checkpoint of messages")

    async def _store_later(self) -> None:
        while True:
            await self._sleep(CHECKPOINT_S)
            if not self._streams.dirty():
                return
            try:
                await self._store_drafts()
            except RelayError as exc:
                log.warning("half-written messages are not stored", extra={"code": exc.code})

    async def _store_drafts(self) -> None:
        dirty = [(draft.message_id, draft.payload()) for draft in self._streams.dirty()]
        if not dirty:
            return
        for draft in self._streams.dirty():
            draft.dirty = False
        now = self._clock.now()

        def work(tx: Tx) -> None:
            for id, said in dirty:
                if store.message(tx, id) is None:
                    store.checkpoint(tx, id, said, now)

        await self._db.write(work)

    async def sweep(self, before: float) -> None:
        """What is older than `before` goes; what nobody has ended for long is ended."""
        await self._events.close_stale(self._clock.now() - FORGOTTEN_S)
        while await self._db.write(lambda tx: store.sweep(tx, before)):
            pass


def _brief(message: Json) -> Json:
    text = message["text"]
    brief = {name: message[name] for name in ("message_id", "source", "title", "sent_at") if name in message}
    return brief | {"text": text[:MAX_LAST]}


def _parse_cursor(cursor: str) -> tuple[int, str, str]:
    """Raises PayloadInvalid."""
    try:
        row, chat, thread = orjson.loads(urlsafe_b64decode(cursor.encode()))
    except ValueError:
        raise PayloadInvalid("cursor: it is none of ours") from None
    if not (isinstance(row, int) and isinstance(chat, str) and isinstance(thread, str)):
        raise PayloadInvalid("cursor: it is none of ours")
    return row, chat, thread
