"""A push followed end to end: which hop it reached, and what to do about the one that failed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from app.clock import Clock
from app.db import Database, Tx
from app.outbox import messages, wakes
from app.outbox import store as outbox
from app.push import store
from app.push.dispatcher import Dispatcher, Pushed
from app.push.errors import TargetUnknown
from app.push.notice import of_test
from app.push.provider import Outcome, Target, Verdict

TTL_S = 600.0  # of the test message: it is of no use to anybody later
POLL_S = 0.25
# Where a request got to, in order; `named` is the name, the rules of the guard, and nothing sent yet.
STAGES = ("named", "connected", "tls", "answered")


@dataclass(frozen=True, slots=True)
class Hop:
    """`target` None: it is about the device. `ok` None: could not be tried, because an earlier one failed."""

    name: str  # paired, target, wishes, reached, accepted
    ok: bool | None
    said: str
    advice: str = ""
    target: str | None = None
    provider: str | None = None

    def as_json(self) -> dict[str, Any]:
        found = {
            "hop": self.name, "ok": self.ok, "said": self.said, "advice": self.advice, "target_id": self.target,
            "provider": self.provider,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value not in (None, "") or name == "ok"}


class Trial:
    """`bell` rings the pumps of devices; `online` says whether a device has a socket open."""

    def __init__(
        self, db: Database, clock: Clock, dispatcher: Dispatcher, relay_id: str,
        bell: Callable[[Iterable[str]], None], online: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._db, self._clock, self._dispatcher, self._relay_id = db, clock, dispatcher, relay_id
        self._bell, self._online = bell, online

    async def run(self, device_id: str) -> dict[str, Any]:
        """The hops up to the provider's answer, and the message that the device is to acknowledge. `answers` False:
        there is none, since nothing would bring it. Raises TargetUnknown for a device that does not exist.
        """
        now = self._clock.now()
        online = self._online(device_id)
        name, targets, statuses, box = await self._db.read(
            lambda tx: (
                store.device_name(tx, device_id), store.active(tx, device_id, now), store.statuses(tx, device_id),
                outbox.mailbox(tx, device_id),
            )
        )  # fmt: skip
        if name is None:
            raise TargetUnknown("there is no such device")
        hops = [_target_hop(targets, statuses)]
        message_id = None
        if targets:
            if box is not None and box.audience != "none":
                message_id = await self._keep(device_id)
            pushed = await self.push(targets)
            hops += [hop for result in pushed for hop in _hops(result)]
        return {
            "device_id": device_id, "name": name, "hops": [hop.as_json() for hop in hops], "message_id": message_id,
            "online": online, "answers": message_id is not None,
        }  # fmt: skip

    async def push(self, targets: Iterable[Target]) -> list[Pushed]:
        """A test to each, right now; what came of it is recorded like that of any other."""
        notice = of_test(self._relay_id, secrets.token_hex(8))
        results = await asyncio.gather(*(self._dispatcher.push(target, notice) for target in targets))

        def record(tx: Tx) -> None:
            now = self._clock.now()
            for result in results:
                again = self._dispatcher.not_before(result.outcome, 0)
                store.record(tx, result.target, notice, result.outcome, now=now, ms=result.ms, not_before=again)
                if result.outcome.verdict is Verdict.SENT:
                    wakes.retry_now(tx, result.target.device_id, now)

        await self._db.write(record)
        self._dispatcher.ring()
        return results

    async def answered(self, message_id: str, wait_s: float) -> bool:
        """Whether the device has acknowledged the test message, at the latest after `wait_s` seconds."""
        ends = self._clock.monotonic() + wait_s
        while True:
            receipts = await self._db.read(lambda tx: messages.receipts(tx, message_id, self._clock.now()))
            if not receipts:
                raise TargetUnknown("there is no such test")
            if receipts[0].state == "acked" or self._clock.monotonic() >= ends:
                return receipts[0].state == "acked"
            await asyncio.sleep(POLL_S)

    async def _keep(self, device_id: str) -> str:
        """A message that wakes nobody by itself: the push of the test is to bring it."""
        message_id = f"push-test-{secrets.token_hex(8)}"
        said = {
            "message_id": message_id, "title": "Push test", "source": "script",
            "text": "This came because your relay was asked to test push.",
        }  # fmt: skip

        def work(tx: Tx) -> None:
            now = self._clock.now()
            outbox.append(
                tx, [device_id], id=message_id, channel="messages", type="message", kind="message",
                body=orjson.dumps(said), now=now, wakes=False, sender="operator", expires_at=now + TTL_S,
            )  # fmt: skip
            tx.after_commit(lambda: self._bell([device_id]))

        await self._db.write(work)
        return message_id


def _target_hop(targets: list[Target], statuses: Iterable[store.Status]) -> Hop:
    if targets:
        names = ", ".join(sorted({target.provider for target in targets}))
        return Hop("target", True, f"{len(targets)} registered: {names}")
    last = max(statuses, key=lambda status: status.retired_at or 0.0, default=None)
    if last is None:
        return Hop("target", False, "the device never registered one", "Open the app on it and switch push on.")
    why = last.retired or "its session has ended"
    return Hop(
        "target", False, f"none is left; the last ({last.provider}) is out of use: {why}",
        "Open the app on the device: it pairs or registers again, or switch push off and on there.",
    )  # fmt: skip


def _hops(result: Pushed) -> list[Hop]:
    """How far the request came, and what the provider said."""
    target, outcome = result.target, result.outcome
    place = {"target": target.target_id, "provider": target.provider}
    if outcome.verdict is Verdict.SENT:
        return [Hop("reached", True, "", **place), Hop("accepted", True, f"in {result.ms} ms", **place)]
    if outcome.status is None and outcome.stage != "answered":
        said = f"{outcome.code}: {outcome.detail}"
        return [Hop("reached", False, said, _advice(outcome), **place), Hop("accepted", None, "", **place)]
    status = f"HTTP {outcome.status}, " if outcome.status is not None else ""
    return [
        Hop("reached", True, "", **place),
        Hop("accepted", False, f"{status}{outcome.code}: {outcome.detail}", _advice(outcome), **place),
    ]


_ADVICE = {
    "address_refused": "If that server is yours, name it in TALARIA_PUSH_ALLOW and start the relay again.",
    "name_unknown": "Check the name, and that the relay's host can resolve it.",
    "connection_refused": "Check that the push server runs, and its port.",
    "tls_failed": "Renew its certificate, or let the relay's host trust its authority.",
    "redirected": "Use the URL that it redirects to: TALARIA_NTFY_URL must be the exact one.",
    "not_found": "Check TALARIA_NTFY_URL, or the project of TALARIA_FCM_CREDENTIALS.",
    "provider_off": "Set the provider up again, or let the device register another one.",
    "rate_limited": "Wait; if it goes on, use a push server of your own.",
    "auth_refused": "Check the clock of the relay's host and the provider's credentials (deploy/push.md).",
}


def _advice(outcome: Outcome) -> str:
    if outcome.verdict is Verdict.GONE:
        return "The target is out of use now: open the app on the device, it registers again."
    return _ADVICE.get(outcome.code, "It is tried again by itself; the provider's status page may say more.")
