"""The agent link as the rooms see it: at most one plugin, there or not."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any

from app.clock import Sleep
from app.hermes.link import codec
from app.hermes.link.codec import Answered, Inbound
from app.hermes.link.connection import Command, Connection, Handler, LinkLimits, Socket
from app.hermes.link.errors import GatewayAway, GatewayOff
from app.tasks import Supervisor
from app.wire import close

log = logging.getLogger("talaria.hermes.link")


class AgentLink:
    """`handler` and `command` are set once, by the composition root, before anything is served. `changed` is called
    when a plugin has come or gone.
    """

    handler: Handler
    command: Command
    was_there = False  # a plugin has connected once

    def __init__(
        self, relay_id: str, tasks: Supervisor, *, changed: Callable[[], None] = lambda: None,
        limits: LinkLimits | None = None, sleep: Sleep = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._relay_id, self._tasks, self._changed = relay_id, tasks, changed
        self._limits, self._sleep = limits or LinkLimits(), sleep
        self._current: Connection | None = None

    @property
    def is_up(self) -> bool:
        return self._current is not None

    def state(self) -> dict[str, Any]:
        """{state: up, down or off, version?, code?, message?}; the last two say why it is not up."""
        if self._current is not None and self._current.hello is not None:
            version = self._current.hello.hermes
            return {"state": "up"} | ({"version": version} if version else {})
        why = GatewayAway() if self.was_there else GatewayOff()
        return {"state": "down" if self.was_there else "off", "code": why.code, "message": why.message}

    async def serve(self, socket: Socket, still_valid: Callable[[], bool]) -> None:
        """One accepted socket, until it is gone."""
        connection = Connection(
            socket, tasks=self._tasks, limits=self._limits, sleep=self._sleep, relay_id=self._relay_id,
            handler=self.handler, still_valid=still_valid, took_over=self._took_over,
            command=self.command,
        )  # fmt: skip
        try:
            await connection.run()
        finally:
            if self._current is connection:
                self._current = None
                log.info("the plugin has left")
                self.handler.lost()
                self._changed()

    def _took_over(self, connection: Connection) -> None:
        """The newer one counts: a plugin may come back before its old socket is known to be dead."""
        older, self._current, self.was_there = self._current, connection, True
        if older is not None:
            older.end(close.SUPERSEDED, "superseded")
        hello = connection.hello
        assert hello is not None
        log.info("the plugin is there", extra={"plugin": hello.plugin, "hermes": hello.hermes})
        self._changed()

    def give(self, message: Inbound) -> bool:
        """False: nobody is there."""
        if self._current is None:
            return False
        self._current.send(codec.inbound(message))
        return True

    async def answer(self, ask_id: str, *, choice: str | None = None, text: str | None = None) -> Answered:
        """Once. Raises GatewayAway if it was surely not sent, OutcomeUncertain if nobody knows."""
        if self._current is None:
            raise GatewayAway()
        answer_id = f"ans-{secrets.token_hex(12)}"
        return await self._current.answer(answer_id, codec.answer(answer_id, ask_id, choice=choice, text=text))
