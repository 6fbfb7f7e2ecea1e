"""The sessions that the relay holds, or that a device looks at, by name; others are in tmux only."""

from __future__ import annotations

from typing import TypeAlias

from app.clock import Clock
from app.terminal.bare import BareSession
from app.terminal.errors import TooManyTerminals
from app.terminal.host import Host
from app.terminal.tmux import Row, Tmux, TmuxSession
from app.terminal.view import Ended, Session

MAX_SESSIONS = 64  # all together, attached or not

Shell: TypeAlias = BareSession | TmuxSession


class Shells:
    """`ended` is called when a session has ended, or a view of it."""

    def __init__(self, clock: Clock, ended: Ended) -> None:
        self._clock, self._ended = clock, ended
        self._by_name: dict[str, Shell] = {}

    def get(self, name: str) -> Shell | None:
        return self._by_name.get(name)

    async def found_or_started(
        self, name: str, size: tuple[int, int], host: Host, tmux: Tmux | None
    ) -> tuple[Shell, bool]:  # fmt: skip
        """(session, whether it is new). Raises TooManyTerminals, TerminalUnavailable."""
        held = self._by_name.get(name)
        if isinstance(held, BareSession) or (held is not None and held.views):
            return held, False
        now = self._clock.now()
        if tmux is None:
            _check_count(len(self._bare()))
            return await BareSession.start(name, host, size, now, self._ended), True
        if (pid := await tmux.find(name)) is not None:
            return TmuxSession(name, pid, now, tmux, self._ended), False
        _check_count(len(await tmux.sessions()) + len(self._bare()))
        return TmuxSession(name, await tmux.create(name, size), now, tmux, self._ended), True

    def add(self, session: Shell) -> None:
        self._by_name[session.name] = session

    def rename(self, session: Shell, name: str) -> None:
        del self._by_name[session.name]
        session.name = name
        self._by_name[name] = session

    def forget_unseen(self, session: Session) -> None:
        """One in tmux that nobody looks at, or one of ours that has ended."""
        if self._by_name.get(session.name) is session and not session.is_held:
            del self._by_name[session.name]

    def is_live(self, name: str) -> bool:
        return name in self._by_name

    async def rows(self, tmux: Tmux) -> list[Row]:
        rows = {row.name: row for row in (await tmux.sessions() if await tmux.available() else [])}
        for one in self._bare():
            rows[one.name] = Row(one.name, len(one.views), 1, int(one.created_at), one.pid, in_tmux=False)
        return list(rows.values())

    def _bare(self) -> list[BareSession]:
        return [session for session in self._by_name.values() if isinstance(session, BareSession)]


def _check_count(count: int) -> None:
    if count >= MAX_SESSIONS:
        raise TooManyTerminals(f"there are {MAX_SESSIONS} terminal sessions: kill one first")
