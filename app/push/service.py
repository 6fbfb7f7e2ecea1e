"""How a sleeping phone is woken, as the rooms above see it: targets, wishes, presence, health, and the dispatcher."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.clock import Clock
from app.db import Database, Tx
from app.errors import RateLimited, StorageFull
from app.guard import guarded_client
from app.outbox import wakes
from app.push import store
from app.push.dispatcher import Dispatcher
from app.push.errors import ProviderOff, TargetUnknown
from app.push.fcm import Fcm, ServiceAccount
from app.push.ntfy import Ntfy
from app.push.presence import Presence
from app.push.provider import PushProvider, Target
from app.push.rules import Preferences
from app.push.trial import Trial
from app.push.wake import Wake
from app.push.webpush import Vapid, WebPush
from app.settings import PushSettings
from app.tasks import Supervisor

TESTS = (6, 60.0)  # that a device may ask for in so many seconds
NOBODY = "https://talaria.invalid"  # a VAPID subject must be a URL; without a public one there is none to give


class Push:
    def __init__(
        self, db: Database, clock: Clock, providers: Iterable[PushProvider], dispatcher: Dispatcher, trial: Trial,
        presence: Presence, wake: Wake, vapid_key: str,
    ) -> None:  # fmt: skip
        self._db, self._clock = db, clock
        self.providers = {name: provider for provider in providers for name in provider.names}
        self.dispatcher, self.trial, self.presence, self.wake = dispatcher, trial, presence, wake
        self._vapid_key = vapid_key
        self._tests: dict[str, deque[float]] = {}

    # targets

    async def register(
        self, device_id: str, provider: str, endpoint: str | None, keys: Mapping[str, str]
    ) -> dict[str, Any]:
        """Raises ProviderOff, TargetInvalid, AddressRefused. The same endpoint again says that it is still good."""
        chosen = self._provider(provider)

        def work(tx: Tx) -> dict[str, Any]:
            now = self._clock.now()
            checked = chosen.check(endpoint, keys)
            known = store.endpoint_of(tx, device_id, provider) if endpoint is None else None
            place = known or checked
            target_id, is_new = store.register(tx, secrets.token_hex(8), device_id, provider, place, keys, now)
            if is_new:
                wakes.rearm(tx, device_id, now)
                wakes.retry_now(tx, device_id, now)
            said = {"target_id": target_id, "provider": provider}
            return said | chosen.public(Target(target_id, device_id, provider, place, keys))

        answer = await self._db.write(work)
        self.dispatcher.ring()
        return answer

    async def unregister(self, device_id: str, target_id: str | None) -> int:
        """How many are gone; None means all. Raises TargetUnknown."""
        removed = await self._db.write(lambda tx: store.unregister(tx, device_id, target_id))
        if target_id is not None and not removed:
            raise TargetUnknown()
        return removed

    def _provider(self, name: str) -> PushProvider:
        found = self.providers.get(name)
        if found is None:
            raise ProviderOff(f"this relay pushes by {', '.join(sorted(self.providers))} only")
        return found

    # wishes and health

    async def preferences(self, device_id: str) -> Preferences:
        return await self._db.read(lambda tx: store.preferences(tx, device_id))

    async def set_preferences(self, device_id: str, wishes: Preferences) -> None:
        await self._db.write(lambda tx: store.set_preferences(tx, device_id, wishes))

    def facts(self, tx: Tx, device_id: str) -> dict[str, Any]:
        """What auth.ok says: how push stands, and what a client needs to register."""
        statuses = store.statuses(tx, device_id)
        state = _health(statuses, store.preferences(tx, device_id))["state"] if statuses else "none"
        return {"state": state, "providers": sorted(self.providers), "vapid_key": self._vapid_key}

    async def healths(self, devices: Iterable[str]) -> dict[str, dict[str, Any]]:
        """`state`: ok, failing, none (no target) or off (every kind is switched off)."""

        def look(tx: Tx) -> dict[str, dict[str, Any]]:
            return {one: _health(store.statuses(tx, one), store.preferences(tx, one)) for one in devices}

        return await self._db.read(look)

    async def about(self, device_id: str) -> dict[str, Any]:
        """Everything its own device may know."""

        def look(tx: Tx) -> dict[str, Any]:
            statuses, now = store.statuses(tx, device_id), self._clock.now()
            extra = {
                target.target_id: self.providers[target.provider].public(target)
                for target in store.active(tx, device_id, now)
                if target.provider in self.providers
            }
            wishes = store.preferences(tx, device_id)
            return _health(statuses, wishes) | {
                "providers": sorted(self.providers), "vapid_key": self._vapid_key,
                "targets": [asdict(status) | extra.get(status.target_id, {}) for status in statuses],
                "preferences": wishes.as_json(), "outcomes": store.outcomes(tx, device_id, store.MAX_OUTCOMES),
            }  # fmt: skip

        return await self._db.read(look)

    # trying it out

    async def test(self, device_id: str) -> list[dict[str, Any]]:
        """A test push to every target of the device. Raises RateLimited, TargetUnknown if there is none."""
        most, seconds = TESTS
        recent = self._tests.setdefault(device_id, deque(maxlen=most))
        now = self._clock.monotonic()
        if len(recent) == most and now - recent[0] < seconds:
            raise RateLimited("wait before you test push again", retry_after=int(seconds - (now - recent[0])) + 1)
        recent.append(now)
        targets = await self._db.read(lambda tx: store.active(tx, device_id, self._clock.now()))
        if not targets:
            raise TargetUnknown("this device has registered no target")
        return [
            {
                "target_id": result.target.target_id, "provider": result.target.provider,
                "verdict": result.outcome.verdict.value, "code": result.outcome.code, "detail": result.outcome.detail,
            }
            for result in await self.trial.push(targets)
        ]  # fmt: skip


def _health(statuses: Iterable[store.Status], wishes: Preferences) -> dict[str, Any]:
    found = list(statuses)
    used = [status for status in found if status.retired_at is None]
    failing = [status for status in used if status.failure is not None]
    state = "none" if not used else "off" if wishes.silent else "failing" if len(failing) == len(used) else "ok"
    worst = max((s for s in failing or found if s.failure), key=lambda s: s.failed_at or 0.0, default=None)
    return {
        "state": state, "last_ok_at": max((s.ok_at for s in found if s.ok_at), default=None),
        "last_error": None if worst is None else {
            "at": worst.failed_at, "provider": worst.provider, "code": worst.failure,
        },
    }  # fmt: skip


@asynccontextmanager
async def open_push(
    settings: PushSettings, *, db: Database, clock: Clock, tasks: Supervisor, data_dir: Path, public_url: str | None,
    relay_id: str, bell: Callable[[Iterable[str]], None], online: Callable[[str], bool],
) -> AsyncIterator[Push]:  # fmt: skip
    """Open, and dispatching until the block ends. Raises Misconfigured for key files that cannot be used."""
    async with AsyncExitStack() as stack:
        outside = await stack.enter_async_context(guarded_client(settings.push_allow))
        vapid = Vapid.load(data_dir, settings.vapid_subject or public_url or NOBODY)
        providers: list[PushProvider] = [WebPush(outside, vapid, settings.push_allow)]
        if settings.ntfy_url:
            # The operator names this server, so it may stand anywhere; nobody else's URL goes through this client.
            own = (*settings.push_allow, urlsplit(settings.ntfy_url).hostname or "")
            client = await stack.enter_async_context(guarded_client(own))
            token = settings.ntfy_token.get_secret_value() if settings.ntfy_token else None
            providers.append(Ntfy(client, settings.ntfy_url, token, public_url))
        if settings.fcm_credentials is not None:
            providers.append(Fcm(outside, ServiceAccount.load(settings.fcm_credentials)))
        by_name = {name: provider for provider in providers for name in provider.names}
        dispatcher = Dispatcher(db, clock, tasks, by_name, relay_id, settings.push_content)
        trial = Trial(db, clock, dispatcher, relay_id, bell, online)

        def start(tx: Tx) -> None:
            store.forgive(tx)
            wakes.retry_now(tx, None, clock.now())

        with suppress(StorageFull):  # then what failed is tried again in its own time
            await db.write(start)
        dispatching = tasks.start(dispatcher.forever(), "push dispatcher")
        try:
            presence = Presence(db, clock, tasks, dispatcher.ring)
            wake = Wake(db, clock, tasks, dispatcher, relay_id)
            yield Push(db, clock, providers, dispatcher, trial, presence, wake, vapid.public)
        finally:
            dispatching.cancel()
