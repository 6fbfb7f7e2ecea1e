"""Threads, their messages, and what waits for the gateway. A thread is (chat, thread); "" is the chat itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import text

from app.db import Tx

Json = dict[str, Any]
HOME = "home"
OF_DEVICE = "device:"  # what the id of a chat with one device begins with
REFUSALS = 32  # of a spool that are remembered
STEP = 2_000  # rows taken in one transaction

_KNOWN = text("SELECT 1 FROM threads WHERE chat_id = :chat LIMIT 1")
_PAIRED = text("SELECT 1 FROM sessions WHERE device_id = :device AND revoked_at IS NULL LIMIT 1")
_COUNT_CHATS = text("SELECT count(DISTINCT chat_id) FROM threads")
_CHATS = text("SELECT DISTINCT chat_id FROM threads")
_OPEN = text(
    "INSERT INTO threads (chat_id, thread_id, last_row, created_at) VALUES (:chat, :thread, 0, :now) "
    "ON CONFLICT (chat_id, thread_id) DO NOTHING"
)
_NEWS = text("UPDATE threads SET last_row = :row WHERE chat_id = :chat AND thread_id = :thread")
_ADD = text(
    "INSERT INTO thread_messages (message_id, chat_id, thread_id, source, payload, created_at) "
    "VALUES (:id, :chat, :thread, :source, :payload, :now) RETURNING row"
)
_REPLACE = text("UPDATE thread_messages SET payload = :payload WHERE message_id = :id")
_MESSAGE = text("SELECT row, source, payload FROM thread_messages WHERE message_id = :id")
_LAST = text(
    "SELECT message_id, source, payload, created_at FROM thread_messages WHERE chat_id = :chat AND thread_id = :thread "
    "ORDER BY row DESC LIMIT 1"
)
_HISTORY = text(
    "SELECT row, payload FROM thread_messages WHERE chat_id = :chat AND thread_id = :thread "
    "AND (:before IS NULL OR row < :before) ORDER BY row DESC LIMIT :limit"
)
# Nothing that was said before a device was paired is unread there.
_UNREAD = (
    "(SELECT count(*) FROM thread_messages m WHERE m.chat_id = t.chat_id AND m.thread_id = t.thread_id "
    "AND m.source <> 'device' AND m.row > COALESCE((SELECT r.row FROM thread_reads r WHERE r.device_id = :device "
    "AND r.chat_id = t.chat_id AND r.thread_id = t.thread_id), 0) "
    "AND m.created_at >= (SELECT d.created_at FROM devices d WHERE d.device_id = :device))"
)
_LIST = text(
    "SELECT t.chat_id, t.thread_id, t.last_row, t.created_at, "
    f"{_UNREAD}, l.payload "
    "FROM threads t LEFT JOIN thread_messages l ON l.row = t.last_row "
    f"WHERE (t.chat_id NOT LIKE '{OF_DEVICE}%' OR t.chat_id = '{OF_DEVICE}' || :device) "
    "AND (:news IS NULL OR (t.last_row, t.chat_id, t.thread_id) < (:news, :chat, :thread)) "
    "ORDER BY t.last_row DESC, t.chat_id DESC, t.thread_id DESC LIMIT :limit"
)
_UNREAD_OF = text(f"SELECT {_UNREAD} FROM threads t WHERE t.chat_id = :chat AND t.thread_id = :thread")
_READ = text(
    "INSERT INTO thread_reads (device_id, chat_id, thread_id, row) VALUES (:device, :chat, :thread, :row) "
    "ON CONFLICT (device_id, chat_id, thread_id) DO UPDATE SET row = MAX(row, excluded.row)"
)
_DRAFT = text(
    "INSERT INTO drafts (message_id, payload, updated_at) VALUES (:id, :payload, :now) "
    "ON CONFLICT (message_id) DO UPDATE SET payload = excluded.payload, updated_at = excluded.updated_at"
)
_DRAFTS = text("SELECT payload FROM drafts ORDER BY rowid")
_DROP_DRAFT = text("DELETE FROM drafts WHERE message_id = :id")
_QUEUE = text(
    "INSERT INTO inbound (inbound_id, chat_id, thread_id, state, passes, payload, created_at) "
    "VALUES (:id, :chat, :thread, :state, :passes, :payload, :now)"
)
_QUEUED = text("SELECT count(*) FROM inbound WHERE chat_id = :chat")
_SELECT = "SELECT inbound_id, chat_id, thread_id, state, passes, payload, created_at FROM inbound "
_NEXT = text(
    _SELECT + "WHERE chat_id = :chat AND thread_id = :thread AND passes = 0 AND state <> 'answering' "
    "ORDER BY row LIMIT 1"
)
_INBOUND = text(_SELECT + "WHERE inbound_id = :id")
_PASSING = text(_SELECT + "WHERE passes <> 0 ORDER BY row")
_ANSWERING = text(_SELECT + "WHERE state = 'answering'")
_LANES = text("SELECT DISTINCT chat_id, thread_id FROM inbound WHERE passes = 0 AND state <> 'answering'")
_RUNS = text(
    "SELECT 1 FROM inbound WHERE chat_id = :chat AND thread_id = :thread AND passes = 0 AND state = 'taken' LIMIT 1"
)
_STATE = text("UPDATE inbound SET state = :state, passes = :passes WHERE inbound_id = :id")
_TAKEN = text("UPDATE inbound SET state = 'taken' WHERE inbound_id = :id AND state = 'queued'")
_GONE = text("DELETE FROM inbound WHERE inbound_id = :id RETURNING chat_id, thread_id")
_CLOSE_TAKEN = text("DELETE FROM inbound WHERE state = 'taken'")
_SPOOL = text("SELECT received, refused FROM link_spools WHERE spool = :spool")
_HELLO = text(
    "INSERT INTO link_spools (spool, received, refused, hello, seen_at) VALUES (:spool, 0, '[]', :hello, :now) "
    "ON CONFLICT (spool) DO UPDATE SET hello = excluded.hello, seen_at = excluded.seen_at"
)
_ADVANCE = text("UPDATE link_spools SET received = :n, refused = :refused WHERE spool = :spool AND received < :n")
_LAST_HELLO = text("SELECT hello FROM link_spools ORDER BY seen_at DESC LIMIT 1")
_OLD_MESSAGES = text(
    "DELETE FROM thread_messages WHERE row IN (SELECT row FROM thread_messages WHERE created_at < :before LIMIT :limit)"
)
_OLD_INBOUND = text("DELETE FROM inbound WHERE created_at < :before")
# A gateway that stays connected says hello once: the newest stay however old they are.
_OLD_SPOOLS = text(
    "DELETE FROM link_spools WHERE seen_at < :before "
    "AND spool NOT IN (SELECT spool FROM link_spools ORDER BY seen_at DESC LIMIT 8)"
)


class Lane(NamedTuple):
    """A thread of a chat: what is said there goes to the gateway one at a time."""

    chat_id: str
    thread_id: str = ""

    def as_json(self) -> Json:
        return {"chat_id": self.chat_id} | ({"thread_id": self.thread_id} if self.thread_id else {})

    @property
    def device_id(self) -> str | None:
        """The only device that it concerns; None: all."""
        return self.chat_id.removeprefix(OF_DEVICE) if self.chat_id.startswith(OF_DEVICE) else None

    def concerns(self, device_id: str) -> bool:
        return self.device_id in (None, device_id)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a device said, until the gateway is through with it."""

    id: str
    lane: Lane
    state: str
    passes: bool
    said: Json
    created_at: float


# threads


def exists(tx: Tx, chat_id: str) -> bool:
    """Whether Hermes may write there: a chat that was used before, or one with a device that is paired."""
    if (device := Lane(chat_id).device_id) is not None:
        return tx.one(_PAIRED, {"device": device}) is not None
    return chat_id == HOME or tx.one(_KNOWN, {"chat": chat_id}) is not None


def chats(tx: Tx) -> int:
    row = tx.one(_COUNT_CHATS)
    return 0 if row is None else int(row[0])


def chat_ids(tx: Tx) -> set[str]:
    return {row[0] for row in tx.all(_CHATS)}


def open_thread(tx: Tx, lane: Lane, now: float) -> None:
    tx.execute(_OPEN, {"chat": lane.chat_id, "thread": lane.thread_id, "now": now})


def add(tx: Tx, lane: Lane, id: str, source: str, payload: Json, now: float) -> None:
    open_thread(tx, lane, now)
    place = {"chat": lane.chat_id, "thread": lane.thread_id}
    row = tx.one(_ADD, place | {"id": id, "source": source, "payload": orjson.dumps(payload), "now": now})
    assert row is not None
    tx.execute(_NEWS, place | {"row": row[0]})


def replace(tx: Tx, id: str, payload: Json) -> None:
    tx.execute(_REPLACE, {"id": id, "payload": orjson.dumps(payload)})


def message(tx: Tx, id: str) -> Json | None:
    row = tx.one(_MESSAGE, {"id": id})
    return None if row is None else orjson.loads(row[2])


def last(tx: Tx, lane: Lane) -> tuple[str, str, Json, float] | None:
    """(id, source, payload, when) of the newest message of a thread."""
    row = tx.one(_LAST, {"chat": lane.chat_id, "thread": lane.thread_id})
    return None if row is None else (row[0], row[1], orjson.loads(row[2]), row[3])


def history(tx: Tx, lane: Lane, before: int | None, limit: int) -> list[tuple[int, Json]]:
    """(row, payload), the newest first."""
    place = {"chat": lane.chat_id, "thread": lane.thread_id, "before": before, "limit": limit}
    return [(row, orjson.loads(payload)) for row, payload in tx.all(_HISTORY, place)]


def listed(
    tx: Tx, device_id: str, before: tuple[int, str, str] | None, limit: int
) -> list[tuple[Lane, int, float, int, Json | None]]:
    """(thread, row of its newest message, when it was opened, unread there, that message), the newest first."""
    news, chat, thread = before or (None, None, None)
    place = {"device": device_id, "news": news, "chat": chat, "thread": thread, "limit": limit}
    return [
        (Lane(chat_id, thread_id), row, created_at, unread, None if payload is None else orjson.loads(payload))
        for chat_id, thread_id, row, created_at, unread, payload in tx.all(_LIST, place)
    ]


def read_up_to(tx: Tx, device_id: str, lane: Lane, message_id: str | None) -> int:
    """Up to that message, or all. Returns how many are unread still."""
    place = {"device": device_id, "chat": lane.chat_id, "thread": lane.thread_id}
    newest = tx.all(_HISTORY, place | {"before": None, "limit": 1})
    named = None if message_id is None else tx.one(_MESSAGE, {"id": message_id})
    row = named[0] if named is not None else newest[0][0] if newest and message_id is None else None
    if row is not None:
        tx.execute(_READ, place | {"row": row})
    unread = tx.one(_UNREAD_OF, place)
    return 0 if unread is None else int(unread[0])


# half-written messages


def checkpoint(tx: Tx, id: str, payload: Json, now: float) -> None:
    tx.execute(_DRAFT, {"id": id, "payload": orjson.dumps(payload), "now": now})


def drafts(tx: Tx) -> list[Json]:
    return [orjson.loads(row[0]) for row in tx.all(_DRAFTS)]


def drop_draft(tx: Tx, id: str) -> None:
    tx.execute(_DROP_DRAFT, {"id": id})


# what waits for the gateway


def queued(tx: Tx, chat_id: str) -> int:
    row = tx.one(_QUEUED, {"chat": chat_id})
    return 0 if row is None else int(row[0])


def queue(tx: Tx, lane: Lane, id: str, said: Json, now: float, *, state: str = "queued", passes: bool = False) -> None:
    values = {"id": id, "chat": lane.chat_id, "thread": lane.thread_id, "state": state, "passes": int(passes)}
    tx.execute(_QUEUE, values | {"payload": orjson.dumps(said).decode(), "now": now})


def next_of(tx: Tx, lane: Lane) -> Waiting | None:
    row = tx.one(_NEXT, {"chat": lane.chat_id, "thread": lane.thread_id})
    return None if row is None else _waiting(row)


def one_inbound(tx: Tx, id: str) -> Waiting | None:
    row = tx.one(_INBOUND, {"id": id})
    return None if row is None else _waiting(row)


def passing(tx: Tx) -> list[Waiting]:
    return [_waiting(row) for row in tx.all(_PASSING)]


def answering(tx: Tx) -> list[Waiting]:
    return [_waiting(row) for row in tx.all(_ANSWERING)]


def lanes(tx: Tx) -> list[Lane]:
    return [Lane(*row) for row in tx.all(_LANES)]


def runs(tx: Tx, lane: Lane) -> bool:
    """Whether the gateway has taken something there and is not through with it."""
    return tx.one(_RUNS, {"chat": lane.chat_id, "thread": lane.thread_id}) is not None


def set_state(tx: Tx, id: str, state: str, *, passes: bool) -> None:
    tx.execute(_STATE, {"id": id, "state": state, "passes": int(passes)})


def taken(tx: Tx, id: str) -> None:
    tx.execute(_TAKEN, {"id": id})


def through(tx: Tx, id: str) -> Lane | None:
    """The gateway is through with it. None: that was known."""
    row = tx.one(_GONE, {"id": id})
    return None if row is None else Lane(*row)


def close_taken(tx: Tx) -> None:
    """The gateway that had taken them is gone, and does them again by itself where it does."""
    tx.execute(_CLOSE_TAKEN)


# the link


def hello(tx: Tx, spool: str, said: Json, now: float) -> tuple[int, list[Json]]:
    """(received, recent refusals)."""
    tx.execute(_HELLO, {"spool": spool, "hello": orjson.dumps(said).decode(), "now": now})
    return position(tx, spool)


def position(tx: Tx, spool: str) -> tuple[int, list[Json]]:
    row = tx.one(_SPOOL, {"spool": spool})
    return (0, []) if row is None else (row[0], orjson.loads(row[1]))


def advance(tx: Tx, spool: str, n: int, refused: list[Json]) -> None:
    tx.execute(_ADVANCE, {"spool": spool, "n": n, "refused": orjson.dumps(refused[-REFUSALS:]).decode()})


def last_hello(tx: Tx) -> Json | None:
    row = tx.one(_LAST_HELLO)
    return None if row is None else orjson.loads(row[0])


# retention


def sweep(tx: Tx, before: float) -> bool:
    """True if there is more. A spool that nobody has come with for so long is forgotten too."""
    tx.execute(_OLD_INBOUND, {"before": before})
    tx.execute(_OLD_SPOOLS, {"before": before})
    return tx.execute(_OLD_MESSAGES, {"before": before, "limit": STEP}).rowcount == STEP


def _waiting(row: Sequence[Any]) -> Waiting:
    id, chat_id, thread_id, state, passes, said, created_at = row
    return Waiting(id, Lane(chat_id, thread_id), state, bool(passes), orjson.loads(said), created_at)
