"""What devices ask of terminal sessions, and what they type."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from app.channels.base import Call, Channel, receives
from app.errors import Overloaded, RelayError
from app.once.keys import Claim, key_of
from app.once.outward import Outward
from app.tasks import Supervisor
from app.terminal.service import GRANT, Terminals
from app.wire.payloads import Payload
from app.wire.terminal import (
    USUAL,
    TerminalAttach,
    TerminalDetach,
    TerminalInput,
    TerminalKill,
    TerminalRename,
    TerminalResize,
    TerminalScrollback,
)

log = logging.getLogger("talaria.channels")

MAX_WAITING = 64  # frames of one link that wait for one before them
MAX_WAITING_BYTES = 4 * 1024 * 1024  # of what they type

Step = Callable[[], Awaitable[None] | None]
Waiting = deque[tuple[Step, Call, str | None, int]]  # with the session's name and the bytes typed


class Terminal(Channel):
    """Frames of one link take effect in order. What must wait for the host is done by a task, so that the link's other
    frames need not, and the link's next frames of this channel wait for it.
    """

    name = "terminal"
    grant = GRANT

    def __init__(self, terminals: Terminals, outward: Outward, tasks: Supervisor) -> None:
        self._terminals, self._outward, self._tasks = terminals, outward, tasks
        self._lanes: dict[int, Waiting] = {}  # of the links with a task

    @receives("terminal.attach", TerminalAttach)
    def attach(self, said: TerminalAttach, call: Call) -> None:
        def answer(payload: Mapping[str, Any]) -> None:
            call.answer("terminal.attached", payload)

        size = said.cols or USUAL[0], said.rows or USUAL[1]
        self._in_order(lambda: self._terminals.attach(call.peer, said.session_name, size, answer), call, said)

    @receives("terminal.input", TerminalInput)
    def input(self, said: TerminalInput, call: Call) -> None:
        data = said.data.encode()

        def step() -> None:
            name = self._terminals.input(call.peer, said.session_name, data)
            if said.n is not None:
                call.answer("terminal.input_ack", {"session_name": name, "n": said.n})

        self._in_order(step, call, said, len(data))

    @receives("terminal.resize", TerminalResize)
    def resize(self, said: TerminalResize, call: Call) -> None:
        size = said.cols, said.rows
        if all(size):
            self._in_order(lambda: self._terminals.resize(call.peer, said.session_name, size), call, said)

    @receives("terminal.detach", TerminalDetach)
    def detach(self, said: TerminalDetach, call: Call) -> None:
        def step() -> None:
            call.answer("terminal.detached", self._terminals.detach(call.peer, said.session_name))

        self._in_order(step, call, said)

    @receives("terminal.kill", TerminalKill)
    def kill(self, said: TerminalKill, call: Call) -> None:
        claimed = said.model_dump(exclude_none=True)
        claim = Claim(call.peer.device_id, call.frame.type, key_of(call.frame.type, claimed, call.frame.id), claimed)

        async def step() -> None:
            killed = self._outward.once(claim, lambda: self._terminals.kill(call.peer, said.session_name))
            call.answer("terminal.detached", await killed)

        self._in_order(step, call, said)

    @receives("terminal.list", None)
    def list(self, payload: Mapping[str, Any], call: Call) -> None:
        async def step() -> None:
            call.answer("terminal.sessions", await self._terminals.list(call.peer))

        self._in_order(step, call, None)

    @receives("terminal.rename", TerminalRename)
    def rename(self, said: TerminalRename, call: Call) -> None:
        async def step() -> None:
            renamed = await self._terminals.rename(call.peer, said.session_name, said.new_name)
            call.answer("terminal.renamed", renamed)

        self._in_order(step, call, said)

    @receives("terminal.scrollback", TerminalScrollback)
    def scrollback(self, said: TerminalScrollback, call: Call) -> None:
        async def step() -> None:
            page = await self._terminals.scrollback(call.peer, said.session_name, said.before, said.lines)
            call.answer("terminal.scrollback", page)

        self._in_order(step, call, said)

    # in order

    def _in_order(self, step: Step, call: Call, said: Payload | None, typed: int = 0) -> None:
        """At once, where nothing before it waits and it waits for nothing. Raises Overloaded."""
        name = getattr(said, "session_name", None)
        lane = self._lanes.get(call.peer.link_id)
        if lane is not None:
            if len(lane) >= MAX_WAITING or typed + sum(bytes for *_, bytes in lane) > MAX_WAITING_BYTES:
                raise Overloaded("wait for the answers to what you asked before")
            lane.append((step, call, name, typed))
            return
        try:
            waiting = step()
        except RelayError as exc:
            refuse(exc, call, name)
            return
        if waiting is not None:
            self._lanes[call.peer.link_id] = lane = deque()
            self._tasks.start(self._run(waiting, call, name, lane), f"{call.frame.type} of link {call.peer.link_id}")

    async def _run(self, waiting: Awaitable[None] | None, call: Call, name: str | None, lane: Waiting) -> None:
        link_id = call.peer.link_id
        try:
            while True:
                try:
                    if waiting is not None:
                        await waiting
                except RelayError as exc:
                    refuse(exc, call, name)
                except Exception:  # those behind it are not to blame
                    log.exception("a terminal frame failed in the relay", extra={"type": call.frame.type})
                    refuse(RelayError("the relay failed on this frame"), call, name)
                if not lane or call.peer.closed:
                    return
                step, call, name, _ = lane.popleft()
                waiting = _late(step)
        finally:
            del self._lanes[link_id]


async def _late(step: Step) -> None:
    waiting = step()
    if waiting is not None:
        await waiting


def refuse(error: RelayError, call: Call, name: str | None) -> None:
    """Older clients know an error of this channel, and which session it is of."""
    if call.peer.supports.turns:
        call.refuse(error)
        return
    payload = {"message": error.message, "code": error.code, "ref": call.frame.id}
    if name is not None:
        payload["session_name"] = name
    if call.frame.type == "terminal.kill":
        payload["reason"] = "client kill"
    call.answer("terminal.error", payload)
