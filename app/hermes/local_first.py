"""Which way to Hermes is used: the local one while it is healthy, else the remote one (deploy/decisions/0006).

A route is greeted before it may get a credential: what answers there must say that it is Hermes. Then both are compared
with it, for they must lead to the same Hermes. What has begun on a route stays on it: a choice counts for what is next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from app.clock import Clock
from app.hermes.errors import UpstreamDiffers, UpstreamError, UpstreamTimeout
from app.hermes.lease import ProcessMark
from app.hermes.routes import Route

log = logging.getLogger("talaria.hermes.routes")

GREETING_S = 5.0
BACK_S = 60.0  # how long the local route has to be healthy before it is taken again: one that flaps is left alone
FRESH_S = 600.0  # age at which what is remembered of the Hermes in use is read again
COMPARED = 100  # conversations, the last used ones

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Likeness:
    """What tells one Hermes from another: its process, and its last conversations by id."""

    mark: ProcessMark | None
    sessions: frozenset[str]

    def is_same(self, other: Likeness) -> bool:
        """Of two that were looked at together. Their processes decide: a copy has the same conversations."""
        if _tells(self.mark) and _tells(other.mark):
            return self.mark == other.mark
        return bool(self.sessions & other.sessions) or not (self.sessions or other.sessions)

    def may_have_become(self, later: Likeness) -> bool:
        """Whether that may be this Hermes at a later time, perhaps in another process."""
        if _tells(self.mark) and self.mark == later.mark:
            return True
        return bool(self.sessions & later.sessions) or not self.sessions


def _tells(mark: ProcessMark | None) -> bool:
    """A process id alone does not: containers all count from 1."""
    return mark is not None and mark.updated_at is not None


def mark_of(pid: Any, platforms: Any) -> ProcessMark | None:
    """From what a health answer says of its platforms; None where it says nothing."""
    server = platforms.get("api_server") if isinstance(platforms, Mapping) else None
    at = server.get("updated_at") if isinstance(server, Mapping) else None
    return ProcessMark(pid if isinstance(pid, int) else None, None if at is None else str(at))


class LocalFirst(Generic[T]):
    """One or two routes to one upstream, the local one first. With one there is nothing to choose.

    `greet` asks without a credential what is there, `liken` with it; both raise UpstreamError. `changed` is called when
    another route came into use, and when the two were found to lead to different Hermes, or to the same again.
    """

    def __init__(
        self, routes: Sequence[Route], *, greet: Callable[[Route], Awaitable[T]],
        liken: Callable[[Route], Awaitable[Likeness]], changed: Callable[[], None], clock: Clock,
    ) -> None:  # fmt: skip
        self._routes = tuple(routes)
        self._greet, self._liken, self._changed, self._clock = greet, liken, changed, clock
        self.route = self._routes[0]
        """The one in use."""
        self._differ = False
        self._chosen = False
        self._compared = False
        self._healthy_since: float | None = None  # the local one, while the remote one is in use
        self._known: Likeness | None = None  # of the Hermes in use
        self._known_at = 0.0
        self._lock = asyncio.Lock()
        self._looks = 0  # ended ones

    @property
    def has_choice(self) -> bool:
        return len(self._routes) > 1

    def as_json(self) -> dict[str, str]:
        """What devices are told of a route in use."""
        differ = UpstreamDiffers()
        return {"route": self.route.name} | ({"code": differ.code, "message": differ.message} if self._differ else {})

    def of(self, fingerprint: str) -> Route:
        """The route of a lease; the one in use where the settings have changed since."""
        return next((route for route in self._routes if route.fingerprint == fingerprint), self.route)

    async def current(self) -> Route:
        """The one in use, after a first look. Raises as `look`."""
        if not self._chosen:
            await self.look()
        return self.route

    async def look(self) -> T:
        """Choose, and greet what is in use. Raises UpstreamError where nothing can be used."""
        async with self._lock:
            return await self._looked()

    async def elsewhere(self, failed: Route) -> Route | None:
        """Another route than this one, which has just failed; None where there is none to be used."""
        if not self.has_choice:
            return None
        looks = self._looks
        async with self._lock:
            # Of many that fail together one looks: with both routes silent each look takes its time.
            if self.route is failed and self._looks == looks:
                self._compared = False
                with suppress(UpstreamError):
                    await self._looked()
        return None if self.route is failed else self.route

    async def _looked(self) -> T:
        try:
            return await self._look()
        finally:
            self._looks += 1

    async def _look(self) -> T:
        if not self.has_choice:
            greeting = await self._greet(self.route)
            self._chosen = True
            return greeting
        local = self._routes[0]
        if self.route is local and self._compared:
            with suppress(UpstreamError):
                greeting = await self._met(local)
                await self._refresh()
                return greeting
        met = dict(zip(self._routes, await asyncio.gather(*map(self._meet, self._routes)), strict=True))
        alive = [route for route in self._routes if not isinstance(met[route], UpstreamError)]
        self._watch_local(local in alive)
        if len(alive) < len(self._routes):
            self._compared = False
        if not alive:
            raise _error(met[self.route])
        self._take(await self._choose(alive))
        await self._refresh()
        greeting_ = met[self.route]
        assert not isinstance(greeting_, UpstreamError)
        return greeting_

    async def _met(self, route: Route) -> T:
        try:
            async with asyncio.timeout(GREETING_S):
                return await self._greet(route)
        except TimeoutError as exc:
            raise UpstreamTimeout() from exc

    async def _meet(self, route: Route) -> T | UpstreamError:
        try:
            return await self._met(route)
        except UpstreamError as exc:
            return exc

    async def _choose(self, alive: Sequence[Route]) -> Route:
        if len(alive) == 1:
            await self._check_alone(alive[0])
            return alive[0]
        local, remote = alive
        if self._chosen and self.route is remote and not self._is_steady():
            return remote
        return await self._compare(local, remote)

    async def _check_alone(self, route: Route) -> None:
        """The other one is away: it is compared with what is remembered of that. Raises UpstreamDiffers."""
        if not self._chosen or route is self.route or self._known is None:
            return
        if not self._known.may_have_become(await self._liken(route)):
            raise UpstreamDiffers(f"the {route.name} URL leads to another Hermes than the {self.route.name} one did")

    async def _compare(self, local: Route, remote: Route) -> Route:
        """Where they differ: the one in use, at first the remote one. What listens on a port of this host is chance;
        the remote one has shown a certificate.
        """
        found = await asyncio.gather(self._likeness(local), self._likeness(remote))
        errors = [found_ for found_ in found if isinstance(found_, UpstreamError)]
        if len(errors) == 2:
            return self.route
        if errors:  # one of them does not let the relay in
            return remote if found[0] is errors[0] else local
        one, other = found
        assert isinstance(one, Likeness)
        assert isinstance(other, Likeness)
        if one.is_same(other):
            self._compared = True
            self._remember(one)
            self._found(differ=False)
            return local
        self._found(differ=True)
        return self.route if self._chosen else remote

    def _found(self, *, differ: bool) -> None:
        if differ is self._differ:
            return
        self._differ = differ
        if differ:
            log.warning("the local and the remote URL lead to different Hermes")
        self._changed()

    async def _likeness(self, route: Route) -> Likeness | UpstreamError:
        try:
            return await self._liken(route)
        except UpstreamError as exc:
            log.warning("a route cannot be compared", extra={"route": route.name, "code": exc.code})
            return exc

    def _take(self, route: Route) -> None:
        if route is self.route and self._chosen:
            return
        news = route is not self.route
        self.route, self._chosen, self._healthy_since = route, True, None
        if news:
            log.info("hermes is reached by another route", extra={"route": route.name, "setting": route.setting})
            self._changed()

    async def _refresh(self) -> None:
        if self._known is None or self._clock.monotonic() - self._known_at >= FRESH_S:
            with suppress(UpstreamError):  # it will be asked again
                self._remember(await self._liken(self.route))

    def _remember(self, likeness: Likeness) -> None:
        self._known, self._known_at = likeness, self._clock.monotonic()

    def _watch_local(self, is_healthy: bool) -> None:
        if not is_healthy:
            self._healthy_since = None
        elif self._healthy_since is None:
            self._healthy_since = self._clock.monotonic()

    def _is_steady(self) -> bool:
        since = self._healthy_since
        return since is not None and self._clock.monotonic() - since >= BACK_S


def _error(met: object) -> UpstreamError:
    assert isinstance(met, UpstreamError)
    return met
