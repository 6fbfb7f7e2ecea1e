"""The phone as eyes and hands: which device is meant, whether its owner agrees, and what it answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import orjson

from app.approvals.service import Approvals
from app.bridge import store
from app.bridge.activity import MAX_ENTRIES, Activity
from app.bridge.commands import Command
from app.bridge.consent import Consent
from app.bridge.devices import NOBODY, Device, Devices
from app.bridge.errors import CommandUnsupported, Denied
from app.bridge.record import Record
from app.bridge.store import Said
from app.clock import Clock
from app.db import Database, Tx
from app.delivery.calls import Calls, new_id
from app.delivery.errors import CallTimeout, DeviceLeft, DeviceOffline, DeviceUnknown, ResponseTooLarge
from app.delivery.peer import Peer, granted
from app.errors import GrantMissing, RelayError
from app.sessions import store as sessions
from app.settings import BridgeSettings
from app.tasks import Supervisor
from app.wire.bridge import BridgeResponse

log = logging.getLogger("talaria.bridge")

CHANNEL = "bridge"
MAX_TIMEOUT_S = 300.0
UNKNOWN_PATH = "unknown bridge path"  # how the Android app begins to say that it has no such command
NO_BODY = (204, 205, 304)  # statuses that HTTP lets nothing follow


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` as over HTTP: below 400 it was done. `body` is `result` as JSON; a result that is no object is its
    `value`.
    """

    status: int
    result: dict[str, Any]
    device_id: str
    body: bytes


def _wanted() -> bool:
    return True


class Bridge:
    def __init__(
        self, *, db: Database, clock: Clock, calls: Calls, consent: Consent, record: Record, unattended: bool
    ) -> None:
        self._db, self._clock, self._calls = db, clock, calls
        self._consent, self._record, self._unattended = consent, record, unattended
        self.devices, self.activity = record.devices, record.activity

    # what phones say

    async def heard(self, peer: Peer, status: bytes) -> None:
        """A status, as JSON. From now on this link gets the commands to its device."""
        name, about = await self._db.read(lambda tx: store.about(tx, peer.device_id))
        if not peer.closed:
            said = Said(peer.session_id, status, self._clock.now())
            self._record.heard(Device(peer.device_id, name, about, said))
            self._calls.take(CHANNEL, peer)

    def answered(self, peer: Peer, response: BridgeResponse) -> None:
        said = {"status": response.status, "result": response.result}
        if not self._calls.answered(peer, response.request_id, said):
            log.info("ignored an answer that nobody waits for", extra={"device": peer.device_id})

    # asking

    async def ask(
        self, command: Command, args: Mapping[str, Any], *, device: str | None = None, caller: str,
        timeout_s: float | None = None, params: Mapping[str, str] | None = None,
        wanted: Callable[[], bool] = _wanted,
    ) -> Answer:  # fmt: skip
        """Ask one phone and return its answer, a refusal of its own (status 4xx, 5xx) included.

        `device` is an id or an alias; None: the chosen one, or the only one. `caller` is for the record: operator,
        link, mcp or a session. The deadline, `timeout_s` seconds from now (from the approval, where one is needed), is
        the command's own unless given, and at most 300. `params` are a query beside the arguments of a POST. `wanted`
        says whether the caller still waits: it is asked before a phone that had to be waited for gets the command.

        Raises DeviceUnknown, AmbiguousDevice, DeviceOffline, CallTimeout, Denied, CommandUnsupported,
        ResponseTooLarge, ResponseInvalid, Overloaded and Draining.
        """
        chosen, alias = await self._find(device)
        if command.method == "GET":
            args = params = {name: _as_query(value) for name, value in args.items()}
        timeout_s = min(timeout_s or command.timeout_s, MAX_TIMEOUT_S)
        id = new_id()
        query = {} if params is None or command.method == "GET" else params
        shown = {**{f"?{name}": value for name, value in query.items()}, **args}
        entry = self.activity.begin(
            id, command, shown, now=self._clock.now(), device=(chosen.device_id, chosen.name), alias=alias,
            caller=caller,
        )  # fmt: skip
        try:
            await self._check_granted(chosen)
            if command.destructive and not self._unattended:
                await self._consent.ask(id, command, shown, device=chosen.name, caller=caller, wanted=wanted)
                await self._check_granted(chosen)  # the owner may have taken their time
            said = {"method": command.method, "path": command.path, "params": params or {}, "body": args}
            payload = await self._call(chosen, command, id, said, timeout_s, wanted)
            answer = _answer(chosen.device_id, payload)
        except RelayError as exc:
            self.activity.failed(entry, exc)
            self._record.touch()
            raise
        except asyncio.CancelledError:
            self.activity.failed(entry, DeviceOffline("the caller left"))
            raise
        self.activity.answered(entry, command, args, answer.status, answer.result, len(answer.body))
        self._record.touch()
        return answer

    async def _call(
        self, device: Device, command: Command, id: str, said: Mapping[str, Any], timeout_s: float,
        wanted: Callable[[], bool],
    ) -> Mapping[str, Any]:  # fmt: skip
        try:
            return await self._calls.ask(
                device.device_id, CHANNEL, "bridge.command", said, timeout_s=timeout_s, id=id, wakes=command.wakes,
                wanted=wanted,
            )  # fmt: skip
        except DeviceLeft:
            raise DeviceLeft("Phone disconnected; whether it has done this is not known") from None
        except DeviceOffline:
            raise DeviceOffline(NOBODY) from None
        except CallTimeout:
            raise CallTimeout(f"Phone did not respond within {timeout_s:g}s") from None
        except GrantMissing:
            raise Denied("the bridge grant of this phone has ended; `talaria devices grant` gives it again") from None

    async def _find(self, selector: str | None) -> tuple[Device, str | None]:
        """One that is away may have been revoked: then it must not stand before another that could be meant."""
        found = self.devices.find(selector)
        if not self.is_online(found[0].device_id):
            await self.refresh()
            found = self.devices.find(selector)
        return found

    async def _check_granted(self, device: Device) -> None:
        """Before one that is away is woken or waited for. Raises DeviceUnknown, Denied."""
        if self.is_online(device.device_id):
            return
        now = self._clock.now()
        living = await self._db.read(lambda tx: sessions.live_sessions_of(tx, device.device_id, now))
        if not living:
            raise DeviceUnknown("this phone is not paired any more")
        if not any(granted(session.grants, CHANNEL, now) for session in living):
            raise Denied("the bridge grant of this phone has ended; `talaria devices grant` gives it again")

    # looking and choosing

    def view(self, device: Device) -> dict[str, Any]:
        """What is known of a phone, and how it stands now."""
        online, active = self.is_online(device.device_id), self.devices.active
        return device.as_json(self._clock.now()) | {
            "phone_connected": online, "connected": online,
            "active": active is not None and active.device_id == device.device_id,
        }  # fmt: skip

    def is_online(self, device_id: str) -> bool:
        """A link of it takes commands now."""
        return self._calls.link(CHANNEL, device_id) is not None

    @property
    def pending(self) -> int:
        """Commands that wait for their answer."""
        return len(self._calls)

    async def refresh(self) -> None:
        """What was revoked goes, and what was renamed has its new name."""
        now, known = self._clock.now(), self.devices.ids  # one that says its first word meanwhile is not among them
        self.devices.keep(await self._db.read(lambda tx: store.living(tx, now)), known)

    async def choose(self, selector: str) -> tuple[Device, str | None]:
        """From now on it is meant where none is named. With the alias. Raises DeviceUnknown, AmbiguousDevice."""
        await self.refresh()
        device, alias = self.devices.find(selector)

        def work(tx: Tx) -> None:
            store.put(tx, device.device_id, device.said)
            store.choose(tx, device.device_id)

        await self._db.write(work)
        self.devices.chosen = device.device_id
        return device, alias

    def recover(self) -> None:
        """After a start, once approvals have recovered."""
        self._consent.recover()

    def drain(self) -> None:
        """Before a restart."""
        self._consent.drain()
        self._calls.drain()


def _as_query(value: object) -> str:
    """As it would stand in a URL."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _answer(device_id: str, payload: Mapping[str, Any]) -> Answer:
    """Raises CommandUnsupported, ResponseTooLarge."""
    status, said = _status(payload["status"]), payload["result"]
    result = said if isinstance(said, dict) else {"value": said}
    error = result.get("error")
    if status in (404, 405, 501) and (status != 404 or str(error).startswith(UNKNOWN_PATH)):
        raise CommandUnsupported(str(error) if error else "")
    try:
        return Answer(status, result, device_id, orjson.dumps(result))
    except orjson.JSONEncodeError:
        raise ResponseTooLarge("the phone's answer is nested more deeply than JSON is written") from None


def _status(said: object) -> int:
    """A 401 would look as if the caller's own session had ended."""
    if type(said) is not int or not 200 <= said <= 599 or said in NO_BODY:
        return 200
    return 403 if said == 401 else said


@asynccontextmanager
async def open_bridge(
    settings: BridgeSettings, *, db: Database, clock: Clock, tasks: Supervisor, calls: Calls, approvals: Approvals
) -> AsyncIterator[Bridge]:
    """With what was stored before; what is new is stored until the block ends."""
    devices = Devices(lambda id: calls.link(CHANNEL, id) is not None)
    record = Record(db, tasks, devices, Activity())
    now = clock.now()
    rows, entries = await db.read(lambda tx: (store.rows(tx, now), store.entries(tx, MAX_ENTRIES)))
    devices.load(rows)
    record.activity.load(entries)
    consent = Consent(approvals)
    try:
        yield Bridge(
            db=db, clock=clock, calls=calls, consent=consent, record=record, unattended=settings.bridge_unattended
        )
    finally:
        with suppress(RelayError):
            await record.store()
