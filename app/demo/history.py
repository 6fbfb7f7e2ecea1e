"""Sessions and their rows, as Hermes shows them over HTTP. In memory; ids rise over all sessions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from app.clock import Clock
from app.demo.refusal import Refusal, session_not_found

Row = dict[str, Any]
MAX_ID = 256
MAX_TITLE = 100
PREVIEW = 60
# Load generators name their sessions themselves and never create them.
OPEN_PREFIX = "any-"
PATCHABLE = frozenset({"title", "end_reason"})


@dataclass(slots=True)
class Session:
    id: str
    started_at: float
    last_active: float
    model: str = "hermes-agent"
    source: str = "api_server"
    title: str | None = None
    end_reason: str | None = None
    ended_at: float | None = None
    parent_id: str | None = None
    has_system_prompt: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    rows: list[Row] = field(default_factory=list)

    def as_json(self, *, listed: bool = False) -> dict[str, Any]:
        """The session object; a list shows two fields more than a single session does."""
        extra = {"last_active": self.last_active, "preview": self._preview()} if listed else {}
        return {
            "id": self.id,
            "source": self.source,
            "user_id": None,
            "model": self.model,
            "title": self.title,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "end_reason": self.end_reason,
            "message_count": len(self.rows),
            "tool_call_count": sum(len(row["tool_calls"] or ()) for row in self.rows),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "reasoning_tokens": 0,
            "estimated_cost_usd": None,
            "actual_cost_usd": None,
            "api_call_count": self.calls,
            "parent_session_id": self.parent_id,
            **extra,
            "has_system_prompt": self.has_system_prompt,
            "has_model_config": self.calls > 0,
        }

    def _preview(self) -> str:
        first = next((str(row["content"]) for row in self.rows if row["role"] == "user"), "")
        return first if len(first) <= PREVIEW else first[:PREVIEW] + "..."


class History:
    """All sessions of one agent. Raises Refusal for what Hermes refuses."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._last_row = 0

    def create(
        self,
        *,
        session_id: str | None = None,
        title: str | None = None,
        source: str = "api_server",
        parent: Session | None = None,
    ) -> Session:
        now = self._clock.now()
        if session_id is None:
            session_id = f"api_{int(now)}_{uuid.uuid4().hex[:8]}"
        _check_id(session_id)
        if session_id in self._sessions:
            raise Refusal(409, f"Session already exists: {session_id}", "session_exists")
        if title is not None:
            self._check_title(title, "Title already in use by session {owner}")
        session = Session(session_id, started_at=now, last_active=now, title=title, source=source)
        if parent is not None:
            session.parent_id, session.model, session.has_system_prompt = (
                parent.id,
                parent.model,
                parent.has_system_prompt,
            )
            for row in parent.rows:
                self._append(session, row, row["timestamp"])
        self._sessions[session_id] = session
        return session

    def get(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None and session_id.startswith(OPEN_PREFIX):
            return self.create(session_id=session_id)
        if session is None:
            raise session_not_found(session_id)
        return session

    def find(self, session_id: str) -> Session | None:
        """What is stored; nothing is made."""
        return self._sessions.get(session_id)

    def tip(self, session_id: str) -> str:
        """Where the conversation is now: compression moves it on, and from there on again."""
        after = {session.parent_id: session for session in self._sessions.values()}
        while (session := self._sessions.get(session_id)) and session.end_reason == "compression":
            session_id = after[session_id].id
        return session_id

    def free_title(self, title: str) -> str:
        """The title, numbered if it is taken."""
        taken = {session.title for session in self._sessions.values()}
        if title not in taken:
            return title
        return next(name for n in range(2, len(taken) + 3) if (name := f"{title} #{n}") not in taken)

    def page(self, limit: int, offset: int, source: str | None) -> tuple[list[Session], bool]:
        """Sessions in the order of last use, and whether there are more after these."""
        every = [session for session in self._sessions.values() if not source or session.source == source]
        every.reverse()  # the newer one first where the times are equal
        every.sort(key=lambda session: session.last_active, reverse=True)
        return every[offset : offset + limit], len(every) > offset + limit

    def patch(self, session_id: str, changes: dict[str, Any]) -> Session:
        session = self.get(session_id)
        if unknown := sorted(set(changes) - PATCHABLE):
            raise Refusal(400, f"Unsupported session fields: {', '.join(unknown)}", "unsupported_session_field")
        if "title" in changes:
            title = changes["title"]
            if title is not None and title != session.title:
                self._check_title(title, "Title {title!r} is already in use by session {owner}")
            session.title = title
        if "end_reason" in changes:
            session.end_reason, session.ended_at = changes["end_reason"], self._clock.now()
        return session

    def delete(self, session_id: str) -> None:
        if self._sessions.pop(session_id, None) is None:
            raise session_not_found(session_id)

    def fork(self, session_id: str, *, new_id: str | None, title: str | None) -> Session:
        """A child with copies of all rows. The parent is marked and stays usable."""
        parent = self.get(session_id)
        if title is None and parent.title is not None:
            title = self.free_title(parent.title)
        child = self.create(session_id=new_id, title=title, parent=parent)
        parent.end_reason, parent.ended_at = "branched", self._clock.now()
        return child

    def compress(self, session_id: str) -> Session:
        """What auto-compression does: the conversation goes on in a new session, the old one is ended."""
        parent = self._ensure(session_id)
        title = None if parent.title is None else self.free_title(parent.title)
        child_id = f"{int(self._clock.now())}_{uuid.uuid4().hex[:6]}"
        child = self.create(session_id=child_id, title=title, source=parent.source, parent=parent)
        parent.end_reason, parent.ended_at = "compression", self._clock.now()
        return child

    def add(self, session_id: str, message: dict[str, Any]) -> None:
        """Store one row. A session deleted in mid-turn reappears, as in Hermes."""
        session = self._ensure(session_id)
        session.last_active = self._clock.now()
        self._append(session, message, session.last_active)

    def count(self, session_id: str, *, input_tokens: int, output_tokens: int, calls: int) -> None:
        session = self._ensure(session_id)
        session.input_tokens += input_tokens
        session.output_tokens += output_tokens
        session.calls += calls

    def _ensure(self, session_id: str) -> Session:
        return self._sessions.get(session_id) or self.create(session_id=session_id)

    def _append(self, session: Session, message: dict[str, Any], timestamp: float) -> None:
        self._last_row += 1
        session.rows.append(
            {
                "id": self._last_row,
                "session_id": session.id,
                "role": message["role"],
                "content": message["content"],
                "tool_call_id": message.get("tool_call_id"),
                "tool_calls": message.get("tool_calls"),
                "tool_name": message.get("tool_name"),
                "timestamp": timestamp,
                "token_count": None,
                "finish_reason": message.get("finish_reason"),
                "reasoning": message.get("reasoning"),
                "reasoning_content": message.get("reasoning_content"),
            }
        )

    def _check_title(self, title: object, taken: str) -> None:
        if not isinstance(title, str):
            raise Refusal(400, "Title must be a string", "invalid_title")
        if len(title) > MAX_TITLE:
            raise Refusal(400, f"Title too long ({len(title)} chars, max {MAX_TITLE})", "invalid_title")
        owner = next((session.id for session in self._sessions.values() if session.title == title), None)
        if owner is not None:
            raise Refusal(400, taken.format(title=title, owner=owner), "invalid_title")


def _check_id(session_id: object) -> None:
    if (
        not isinstance(session_id, str)
        or not session_id
        or "/" in session_id
        or ".." in session_id
        or not session_id.isprintable()
    ):
        raise Refusal(400, "Invalid session ID", "invalid_session_id")
    if len(session_id) > MAX_ID:
        raise Refusal(400, "Session ID too long", "invalid_session_id")
