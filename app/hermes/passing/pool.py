"""Connections to Hermes that are open between exchanges: opening one costs more than a small exchange on it."""

from __future__ import annotations

import asyncio

from app.errors import Overloaded
from app.hermes.errors import unreached
from app.hermes.passing.connection import Connection
from app.hermes.routes import Route, trust
from app.hermes.stream import CONNECT_S

MAX_OPEN = 1000  # at once, each with a request of a client; beyond it requests are refused
MAX_IDLE = 64
IDLE_S = 15.0  # Hermes closes its own after 75 s, servers in front of it some sooner: it must not meet a request


class Pool:
    """The last one used is used first, so that a burst's connections end soon after it."""

    def __init__(self) -> None:
        self._idle: list[tuple[str, Connection, asyncio.TimerHandle]] = []
        self._in_use = 0

    @property
    def in_use(self) -> int:
        return self._in_use

    async def take(self, route: Route, *, fresh: bool = False) -> Connection:
        """Give it back. Raises UpstreamUnreachable, UpstreamTimeout, Overloaded."""
        while not fresh and (kept := self._kept(route)) is not None:
            if not kept.is_lost:
                self._in_use += 1
                return kept
        if self._in_use >= MAX_OPEN:
            raise Overloaded("too many requests to Hermes are open; try again shortly", retry_after=1)
        self._in_use += 1
        try:
            return await _connected(route)
        except BaseException:
            self._in_use -= 1
            raise

    def give(self, route: Route, connection: Connection) -> None:
        """After an exchange, however it ended."""
        self._in_use -= 1
        if not connection.finish() or len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        expiry = asyncio.get_running_loop().call_later(IDLE_S, self._expire, connection)
        self._idle.append((route.base, connection, expiry))

    def close(self) -> None:
        for _, connection, expiry in self._idle:
            expiry.cancel()
            connection.abort()
        self._idle.clear()

    def _kept(self, route: Route) -> Connection | None:
        for at in range(len(self._idle) - 1, -1, -1):
            base, connection, expiry = self._idle[at]
            if base == route.base:
                expiry.cancel()
                del self._idle[at]
                return connection
        return None

    def _expire(self, connection: Connection) -> None:
        self._idle = [kept for kept in self._idle if kept[1] is not connection]
        connection.abort()


async def _connected(route: Route) -> Connection:
    try:
        async with asyncio.timeout(CONNECT_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, route.host, route.port, ssl=trust() if route.tls else None
            )
    except OSError as exc:  # TimeoutError too
        raise unreached(exc) from exc
    return connection
