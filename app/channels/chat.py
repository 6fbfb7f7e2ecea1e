"""What devices say about conversations. Turns are stored and run by `turns`; lists come from Hermes."""

from __future__ import annotations

from typing import Any

import orjson

from app.channels.base import Call, Channel, receives
from app.channels.later import Later
from app.errors import PayloadInvalid, RelayError
from app.hermes.hermes import Hermes
from app.tasks import Supervisor
from app.turns.runner import Turns
from app.wire.payloads import ChatSend, ChatSessionsList, ChatSessionsMessages, ChatStop, ChatWatch

MAX_PAGE = 3 * 1024 * 1024  # bytes of one page of messages: a frame has at most 4 MiB
MAX_ROW = 256 * 1024  # bytes of one message in it

Row = dict[str, Any]


class Chat(Channel):
    name = "chat"
    grant = "chat"

    def __init__(self, turns: Turns, hermes: Hermes, tasks: Supervisor) -> None:
        self._turns, self._hermes = turns, hermes
        self._ask = Later(tasks)

    @receives("chat.send", ChatSend)
    async def send(self, payload: ChatSend, call: Call) -> None:
        try:
            await self._turns.send(
                call.peer, payload, call.frame.id, lambda answer: call.answer("chat.accepted", answer)
            )  # fmt: skip
        except RelayError as exc:
            if call.peer.supports.turns:
                raise
            call.answer("chat.error", {"message": exc.message, "code": exc.code})

    @receives("chat.watch", ChatWatch)
    async def watch(self, payload: ChatWatch, call: Call) -> None:
        _name_one(payload)
        await self._turns.watch(call.peer, payload.session_id, payload.turn_id, call.frame.id)

    @receives("chat.unwatch", ChatWatch)
    def unwatch(self, payload: ChatWatch, call: Call) -> None:
        _name_one(payload)
        self._turns.unwatch(call.peer, payload.session_id, payload.turn_id)

    @receives("chat.stop", ChatStop)
    def stop(self, payload: ChatStop, call: Call) -> None:
        self._ask(self._stop(payload, call), call)

    @receives("chat.sessions.list", ChatSessionsList)
    def sessions(self, payload: ChatSessionsList, call: Call) -> None:
        self._ask(self._list(payload, call), call)

    @receives("chat.sessions.messages", ChatSessionsMessages)
    def messages(self, payload: ChatSessionsMessages, call: Call) -> None:
        self._ask(self._page(payload, call), call)

    # what waits for Hermes

    async def _stop(self, asked: ChatStop, call: Call) -> None:
        call.answer("chat.stopped", await self._turns.stop(call.peer, asked.turn_id, call.frame.id))

    async def _list(self, asked: ChatSessionsList, call: Call) -> None:
        sessions, has_more = await self._hermes.api.list_sessions(asked.limit, asked.offset)
        page = {"sessions": sessions, "limit": asked.limit, "offset": asked.offset, "has_more": has_more}
        call.answer("chat.sessions", page)

    async def _page(self, asked: ChatSessionsMessages, call: Call) -> None:
        rows = await self._hermes.api.messages(asked.session_id)
        page, offset = page_of(rows, asked.limit, asked.offset)
        call.answer(
            "chat.sessions.messages",
            {
                "session_id": asked.session_id, "messages": page, "limit": asked.limit, "offset": offset,
                "has_more": offset + len(page) < len(rows), "total": len(rows),
            },
        )  # fmt: skip


def page_of(rows: list[Row], limit: int, offset: int | None) -> tuple[list[Row], int]:
    """At most `limit` rows from `offset` (counted from the oldest; None: the newest), and where they begin.

    A page that would be too long for a frame has fewer rows, and a row that is too long loses what is longest in it.
    """
    newest = offset is None
    chosen = rows[-limit:] if offset is None else rows[offset : offset + limit]
    page: list[Row] = []
    size = 0
    for row in reversed(chosen) if newest else chosen:
        shown, length = _fitting(row)
        size += length
        if page and size > MAX_PAGE:
            break
        page.append(shown)
    if newest:
        page.reverse()
    return page, len(rows) - len(page) if offset is None else offset


def _fitting(row: Row) -> tuple[Row, int]:
    length = len(orjson.dumps(row))
    if length <= MAX_ROW:
        return row, length
    shown = {key: value for key, value in row.items() if len(orjson.dumps(value)) <= MAX_ROW // 16}
    for key in ("content", "reasoning"):
        if key not in shown and key in row:
            value = row[key] if isinstance(row[key], str) else orjson.dumps(row[key]).decode()
            shown[key] = value[: MAX_ROW // 16]
    shown["truncated"] = True
    return shown, len(orjson.dumps(shown))


def _name_one(payload: ChatWatch) -> None:
    if payload.session_id is None and payload.turn_id is None:
        raise PayloadInvalid("session_id or turn_id is needed")
