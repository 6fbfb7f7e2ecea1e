"""Named terminal sessions: who is attached to which, and what may be done with them."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from app.audit import store as audit
from app.clock import Clock
from app.db import Database
from app.delivery.peer import Peer, granted
from app.errors import Draining
from app.terminal.attached import Attached
from app.terminal.bare import BareSession
from app.terminal.errors import (
    TerminalExists,
    TerminalNameInvalid,
    TerminalNotAttached,
    TerminalOff,
    TerminalUnknown,
    TooManyTerminals,
)
from app.terminal.history import Page
from app.terminal.host import Host
from app.terminal.shells import Shells
from app.terminal.tmux import PREFIX, Tmux, TmuxSession
from app.terminal.view import Session, View
from app.wire.envelope import encode

GRANT = "terminal"
MAX_PER_LINK = 4
MAX_PAGE_BYTES = 3 * 1024 * 1024  # of scrollback: a frame has at most 4 MiB
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")  # it becomes part of what tmux is told

Answer = dict[str, Any]


class Terminals:
    """`host` None: switched off. Every verb raises TerminalOff then, and TerminalUnavailable where the host fails.

    A `name` is what the link calls a session it is attached to, else the session's own; None: the last attached.
    """

    def __init__(self, host: Host | None, db: Database, clock: Clock) -> None:
        self._host, self._db, self._clock = host, db, clock
        self._tmux = Tmux(host, clock) if host is not None else None
        self._shells = Shells(clock, self._ended)
        self.attached = Attached(self._close)
        self._changing = asyncio.Lock()  # sessions begin, end and change their names one after the other
        self._draining = False

    # attaching

    async def attach(
        self, peer: Peer, name: str | None, size: tuple[int, int], answer: Callable[[Answer], None]
    ) -> None:  # fmt: skip
        """`answer` is called before the first output. Without a name: a new session.

        Raises TerminalNameInvalid, TooManyTerminals.
        """
        host, tmux = self._on()
        if self._draining:
            raise Draining()
        name = _checked(name or f"shell-{secrets.token_hex(4)}")
        before = self.attached.of(peer).get(name)
        if before is None and len(self.attached.of(peer)) >= MAX_PER_LINK:
            raise TooManyTerminals(f"Session cap reached ({MAX_PER_LINK}). Detach an existing session first.")
        await self._audit(peer, "terminal.attached", name)
        async with self._changing:
            with_tmux = await tmux.available()
            session, is_new = await self._shells.found_or_started(name, size, host, tmux if with_tmux else None)
            if before is not None:
                self._detach(before)  # the device begins anew: it may have lost its screen
            view = View(peer, session, name, size, may_read=lambda: self._may(peer), lost=self._lost)
            self._shells.add(session)
            try:
                await session.open(view)
            finally:
                self._shells.forget_unseen(session)
        if peer.closed:  # it left meanwhile, and will not leave again
            self._close(view)
            return
        if not view.ended:
            self.attached.add(view)
        answer(
            {
                "session_name": name, "pid": session.pid, "shell": host.shell, "cols": size[0], "rows": size[1],
                "tmux_available": with_tmux, "reattach": not is_new,
            }
        )  # fmt: skip
        view.start()

    # what an attached device does

    def input(self, peer: Peer, name: str | None, data: bytes) -> str:
        """Returns the session's name. Raises TerminalNotAttached, TerminalInputFull."""
        self._on()
        view = self.attached.get(peer, name)
        view.session.write(view, data)
        return view.name

    def resize(self, peer: Peer, name: str | None, size: tuple[int, int]) -> None:
        """Raises TerminalNotAttached."""
        self._on()
        self.attached.get(peer, name).resize(*size)

    def detach(self, peer: Peer, name: str | None) -> Answer:
        """Raises TerminalNotAttached."""
        self._on()
        view = self.attached.get(peer, name)
        self._detach(view)
        return {"session_name": view.name, "reason": "client detach"}

    # sessions, attached or not

    async def list(self, peer: Peer) -> Answer:
        host, tmux = self._on()
        own = {view.session.name for view in self.attached.of(peer).values()}
        rows = [
            {
                "name": row.name, "tmux_name": PREFIX + row.name if row.in_tmux else None, "attached": row.attached,
                "windows": row.windows, "created_at": row.created_at, "pid": row.pid, "shell": host.shell,
                "live": self._shells.is_live(row.name), "owned_by_client": row.name in own,
            }
            for row in await self._shells.rows(tmux)
        ]  # fmt: skip
        return {"sessions": rows, "tmux_available": await tmux.available()}

    async def kill(self, peer: Peer, name: str | None) -> Answer:
        """End it, whoever is attached; they are told. Raises TerminalUnknown."""
        _, tmux = self._on()
        called, target = self._target(peer, name)
        async with self._changing:
            held = self._shells.get(target)
            if isinstance(held, BareSession):
                await self._audit(peer, "terminal.killed", target)
                self._leave(peer, held)
                held.kill()
            else:
                await self._kill_in_tmux(peer, target, held, tmux)
        if isinstance(held, BareSession):
            await held.over
        return {"session_name": called, "reason": "client kill"}

    async def _kill_in_tmux(self, peer: Peer, name: str, held: TmuxSession | None, tmux: Tmux) -> None:
        if not await tmux.available() or await tmux.find(name) is None:
            raise TerminalUnknown()
        await self._audit(peer, "terminal.killed", name)
        if held is not None:
            held.killed = True
            self._leave(peer, held)
        await tmux.kill(name)

    async def rename(self, peer: Peer, name: str | None, new: str) -> Answer:
        """Attached devices that know of renaming are told; to the others it keeps the name they know.

        Raises TerminalUnknown, TerminalExists, TerminalNameInvalid.
        """
        _, tmux = self._on()
        _, old = self._target(peer, name)
        _checked(new)
        async with self._changing:
            held = self._shells.get(old)
            if self._shells.get(new) is not None or (await tmux.available() and await tmux.find(new) is not None):
                raise TerminalExists()
            if isinstance(held, BareSession):
                await self._audit(peer, "terminal.renamed", old, to=new)
            else:
                if not await tmux.available() or await tmux.find(old) is None:
                    raise TerminalUnknown()
                await self._audit(peer, "terminal.renamed", old, to=new)
                await tmux.rename(old, new)
            if held is not None:
                self._shells.rename(held, new)
        for view in held.views if held is not None else ():
            self._tell_renamed(view, new, by=peer)
        return {"session_name": old, "new_name": new}

    def _tell_renamed(self, view: View, new: str, by: Peer) -> None:
        if view.peer is by:
            self.attached.rename(view, new)
        elif view.peer.supports.turns:
            view.peer.send(encode("terminal", "terminal.renamed", {"session_name": view.name, "new_name": new}))
            self.attached.rename(view, new)

    async def scrollback(self, peer: Peer, name: str | None, before: int | None, count: int) -> Answer:
        """Raises TerminalUnknown."""
        _, tmux = self._on()
        called, target = self._target(peer, name)
        held = self._shells.get(target)
        if isinstance(held, BareSession):
            page = held.page(before, count)
        elif await tmux.available():
            page = await tmux.page(target, before, count)
        else:
            raise TerminalUnknown()
        return {"session_name": called} | _shown(page)

    # how it ends

    async def keeps(self) -> bool | None:
        """Whether sessions outlive the relay, for there is tmux; None: switched off. Raises TerminalUnavailable."""
        return None if self._tmux is None else await self._tmux.available()

    def drain(self) -> None:
        """The relay ends, and with it the shells that it holds itself."""
        self._draining = True
        for view in self.attached:
            view.end("server shutdown")

    async def close(self) -> None:
        if self._host is not None:
            await self._host.close()

    def _detach(self, view: View) -> None:
        self.attached.remove(view)
        self._close(view)

    def _close(self, view: View) -> None:
        view.session.detach(view)
        self._shells.forget_unseen(view.session)

    def _leave(self, peer: Peer, session: Session) -> None:
        """Who kills a session hears it as the answer."""
        for view in session.views:
            if view.peer is peer:
                self._detach(view)

    def _lost(self, view: View) -> None:
        """Its device may not read terminals any more."""
        self._detach(view)
        payload = {"session_name": view.name, "reason": "grant expired"}
        view.peer.send(encode("terminal", "terminal.detached", payload))

    def _ended(self, session: Session, views: Iterable[View]) -> None:
        """Of its own, or killed; the views say so when all output has been shown."""
        for view in views:
            self.attached.remove(view)
        self._shells.forget_unseen(session)

    # small things

    def _on(self) -> tuple[Host, Tmux]:
        if self._host is None or self._tmux is None:
            raise TerminalOff()
        return self._host, self._tmux

    def _target(self, peer: Peer, name: str | None) -> tuple[str, str]:
        """(what the link calls it, its name). Raises TerminalNotAttached, TerminalNameInvalid."""
        view = self.attached.find(peer, name)
        if view is not None:
            return view.name, view.session.name
        if name is None:
            raise TerminalNotAttached()
        return name, _checked(name)

    def _may(self, peer: Peer) -> bool:
        return granted(peer.grants, GRANT, self._clock.now())

    async def _audit(self, peer: Peer, action: str, name: str, **detail: Any) -> None:
        now, device_id, actor = self._clock.now(), peer.device_id, peer.session_id[:8]
        await self._db.write(
            lambda tx: audit.record(
                tx, at=now, actor=actor, action=action, subject=name, device_id=device_id, **detail
            )
        )  # fmt: skip


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise TerminalNameInvalid()
    return name


def _shown(page: Page) -> Answer:
    lines, first = page.lines, page.first
    while len(orjson.dumps(lines)) > MAX_PAGE_BYTES and len(lines) > 1:
        first += len(lines) - len(lines) // 2
        lines = lines[-(len(lines) // 2) :]
    return {"first": first, "lines": lines, "oldest": page.oldest, "total": page.total}
