"""What devices ask and say about conversations as a whole. Hermes keeps them; nothing of them is stored here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from app.channels.base import Call, Channel, receives
from app.channels.later import Later
from app.delivery.news import News
from app.errors import RelayError
from app.hermes.hermes import Hermes
from app.once.keys import Claim, key_of
from app.once.outward import Deed, Outward
from app.tasks import Supervisor
from app.wire.conversations import (
    ChatSessionsCreate,
    ChatSessionsDelete,
    ChatSessionsFork,
    ChatSessionsGet,
    ChatSessionsList,
    ChatSessionsMessages,
    ChatSessionsRename,
)
from app.wire.payloads import Payload

MAX_PAGE = 3 * 1024 * 1024  # bytes of one page of messages: a frame has at most 4 MiB
MAX_ROW = 256 * 1024  # bytes of one message in it

Row = dict[str, Any]


class SessionBusy(RelayError):
    """A turn runs or waits in this conversation: stop it first, or delete the conversation when it has ended."""

    code = "session_busy"
    http_status = 409
    retryable = True


class Conversations(Channel):
    name = "chat"
    grant = "chat"

    def __init__(
        self, hermes: Hermes, outward: Outward, news: News, tasks: Supervisor, busy: Callable[[str], bool]
    ) -> None:
        """`busy` says whether a turn of ours runs or waits in a session."""
        self._hermes, self._outward, self._news, self._busy = hermes, outward, news, busy
        self._later = Later(tasks)

    @receives("chat.sessions.list", ChatSessionsList)
    def sessions(self, payload: ChatSessionsList, call: Call) -> None:
        self._later(self._list(payload, call), call)

    @receives("chat.sessions.messages", ChatSessionsMessages)
    def messages(self, payload: ChatSessionsMessages, call: Call) -> None:
        self._later(self._page(payload, call), call)

    @receives("chat.sessions.get", ChatSessionsGet)
    def get(self, payload: ChatSessionsGet, call: Call) -> None:
        self._later(self._get(payload, call), call)

    @receives("chat.sessions.create", ChatSessionsCreate)
    def create(self, payload: ChatSessionsCreate, call: Call) -> None:
        async def deed() -> Row:
            made = await self._hermes.api.create_session(
                title=payload.title, model=payload.model, profile=payload.profile
            )  # fmt: skip
            return self._made(made, call)

        self._later(self._once(payload, call, deed), call)

    @receives("chat.sessions.fork", ChatSessionsFork)
    def fork(self, payload: ChatSessionsFork, call: Call) -> None:
        async def deed() -> Row:
            made = await self._hermes.api.fork_session(payload.session_id, payload.title, payload.profile)
            return self._made(made, call)

        self._later(self._once(payload, call, deed), call)

    @receives("chat.sessions.rename", ChatSessionsRename)
    def rename(self, payload: ChatSessionsRename, call: Call) -> None:
        async def deed() -> Row:
            renamed = await self._hermes.api.rename_session(payload.session_id, payload.title, payload.profile)
            return self._made(renamed, call)

        self._later(self._once(payload, call, deed), call)

    @receives("chat.sessions.delete", ChatSessionsDelete)
    def delete(self, payload: ChatSessionsDelete, call: Call) -> None:
        async def deed() -> Row:
            if self._busy(payload.session_id):
                raise SessionBusy()
            await self._hermes.delete(payload.session_id, payload.profile)
            self._news.conversation(payload.session_id, deleted=True, besides=call.peer)
            return {"session_id": payload.session_id, "deleted": True}

        self._later(self._once(payload, call, deed), call)

    def _made(self, session: Row, call: Call) -> Row:
        """What is new about a conversation, for who asked and for the others."""
        title = session.get("title")
        title = title if isinstance(title, str) else None
        self._news.conversation(session["id"], title=title, besides=call.peer)
        return {"session": session}

    # what waits for Hermes

    async def _list(self, asked: ChatSessionsList, call: Call) -> None:
        sessions, has_more = await self._hermes.api.list_sessions(asked.limit, asked.offset, asked.profile)
        page = {"sessions": sessions, "limit": asked.limit, "offset": asked.offset, "has_more": has_more}
        call.answer("chat.sessions", page)

    async def _page(self, asked: ChatSessionsMessages, call: Call) -> None:
        rows = await self._hermes.api.messages(asked.session_id, asked.profile)
        page, offset = page_of(rows, asked.limit, asked.offset)
        call.answer(
            "chat.sessions.messages",
            {
                "session_id": asked.session_id, "messages": page, "limit": asked.limit, "offset": offset,
                "has_more": offset + len(page) < len(rows), "total": len(rows),
            },
        )  # fmt: skip

    async def _get(self, asked: ChatSessionsGet, call: Call) -> None:
        session = await self._hermes.api.session(asked.session_id, asked.profile)
        call.answer("chat.sessions.get", {"session": session})

    async def _once(self, payload: Payload, call: Call, deed: Deed) -> None:
        """Answered by a frame of the same type. A copy of the frame gets the same answer, and changes nothing."""
        said, type_ = payload.model_dump(mode="json", exclude_none=True), call.frame.type
        claim = Claim(call.peer.device_id, type_, key_of(type_, said, call.frame.id), said)
        call.answer(type_, await self._outward.once(claim, deed))


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
