"""All checks, run side by side by the relay itself."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence

from app.clock import Clock
from app.db import Database
from app.doctor import host, store, upstreams
from app.doctor.finding import Finding
from app.doctor.outside import Outside
from app.doctor.probe import Probe
from app.hermes.hermes import Hermes
from app.hermes.link.line import AgentLink
from app.push.service import Push
from app.settings import Settings
from app.tasks import Supervisor

log = logging.getLogger("talaria.doctor")

WITHIN_S = 60.0  # for one group of checks
Group = Callable[[], Awaitable[Sequence[Finding]]]


class Doctor:
    """`more` are checks of rooms beside this one; `trust` is what the public URL's certificate is checked against."""

    def __init__(
        self, settings: Settings, *, db: Database, clock: Clock, tasks: Supervisor, hermes: Hermes, link: AgentLink,
        push: Push, more: Mapping[str, Group], trust: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._settings, self._db, self._clock = settings, db, clock
        self._hermes, self._link, self._push = hermes, link, push
        self._tasks, self._trust = tasks, trust
        self._running: asyncio.Task[list[Finding]] | None = None
        self.probe = Probe()
        self._groups: dict[str, Group] = {
            "host": self._host, "outside": self._outside, "tailscale": self._tailscale, "upstreams": self._upstreams,
            "devices": self._devices,
        } | dict(more)  # fmt: skip

    async def examine(self) -> list[Finding]:
        """Whoever asks while they are under way gets what those find: nobody waits for two runs."""
        if self._running is None or self._running.done():
            self._running = self._tasks.start(self._examine(), "doctor")
        return list(await asyncio.shield(self._running))

    async def _examine(self) -> list[Finding]:
        found = await asyncio.gather(*(self._one(name, group) for name, group in self._groups.items()))
        return [finding for findings in found for finding in findings]

    async def _one(self, name: str, group: Group) -> Sequence[Finding]:
        try:
            async with asyncio.timeout(WITHIN_S):
                return await group()
        except TimeoutError:
            return [Finding(name, "fail", f"the checks took longer than {WITHIN_S:.0f} s", "try again")]
        except Exception:  # a check that breaks must not hide the others
            log.exception("a check failed by itself", extra={"group": name})
            return [Finding(name, "fail", "the checks broke off", "the relay's log says why: please report it")]

    async def _host(self) -> Sequence[Finding]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, host.look, self._settings.server, self._clock)

    async def _outside(self) -> Sequence[Finding]:
        trust = self._trust or ssl.create_default_context()
        return await Outside(self._settings.server, self._clock, self.probe, self._pin, trust).look()

    async def _tailscale(self) -> Sequence[Finding]:
        return [await upstreams.tailscale(self._settings.server.port)]

    async def _upstreams(self) -> Sequence[Finding]:
        return await upstreams.look(self._settings.hermes, self._hermes, self._link)

    async def _devices(self) -> Sequence[Finding]:
        return await upstreams.phones(self._push, await self._db.read(store.devices))

    async def _pin(self, host: str, key: str) -> str | None:
        return await self._db.write(lambda tx: store.pinned(tx, host, key))
