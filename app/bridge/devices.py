"""The phones that can be asked: what each last said of itself, and which one somebody means."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from app.bridge.errors import AmbiguousDevice
from app.bridge.store import Row, Said
from app.delivery.errors import DeviceOffline, DeviceUnknown

NOBODY = "No phone connected. Open the Hermes app on your phone and connect."
MAX_SELECTOR = 256  # characters: it stands in the record
MIN_WORD = 3  # letters of a word of a name that may stand for it


@dataclass(frozen=True, slots=True)
class Device:
    """`about` is what it said when it was paired."""

    device_id: str
    name: str
    about: Mapping[str, str]
    said: Said

    @property
    def aliases(self) -> list[str]:
        """What may stand for it, besides its id."""
        words = {word for word in re.split(r"[^a-z0-9]+", self.name.lower()) if len(word) >= MIN_WORD}
        form = self.about.get("form_factor", "").lower()
        found = {self.name, self.device_id, _plain(self.name), _plain(self.device_id), *words, form}
        return sorted(found - {"", "unknown"})

    def is_called(self, plain: str) -> bool:
        return any(_plain(alias) == plain for alias in self.aliases)

    def as_json(self, now: float) -> dict[str, Any]:
        """Its own words first, then ours, under the names that hermes-relay gives them."""
        said: dict[str, Any] = orjson.loads(self.said.status)
        own = said.get("device")
        named = own if isinstance(own, dict) else {"name": self.name}
        return said | {
            "device": named | {"device_id": self.device_id}, "device_id": self.device_id, "device_name": self.name,
            "last_seen_seconds_ago": max(0, int(now - self.said.at)), "status_at": self.said.at,
            "aliases": self.aliases, "session_token_prefix": self.said.session_id[:8],
            "client_surface": self.about.get("surface", "unknown"),
            "device_form_factor": self.about.get("form_factor", "unknown"),
        }  # fmt: skip


def _plain(text: str) -> str:
    """What is left when case, spaces and signs do not count; of a name without letters, the name."""
    return "".join(re.findall(r"[^\W_]+", text.lower())) or text


class Devices:
    """All that ever said that they can be asked, and are still paired. `online` says which of them have a link."""

    def __init__(self, online: Callable[[str], bool]) -> None:
        self._online = online
        self._all: dict[str, Device] = {}  # who spoke last is last
        self.chosen: str | None = None

    def load(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._all[row.device_id] = Device(row.device_id, row.name, row.about, row.said)
            self.chosen = row.device_id if row.chosen else self.chosen

    def put(self, device: Device) -> None:
        self._all.pop(device.device_id, None)
        self._all[device.device_id] = device

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._all)

    def keep(self, living: Mapping[str, str], looked_at: Collection[str]) -> None:
        """Of those that were looked at, forget all but these, which may have been renamed."""
        self._all = {
            id: Device(id, living.get(id, one.name), one.about, one.said)
            for id, one in self._all.items()
            if id in living or id not in looked_at
        }

    def get(self, device_id: str) -> Device | None:
        return self._all.get(device_id)

    def latest_first(self) -> list[Device]:
        return list(reversed(self._all.values()))

    def connected(self) -> list[Device]:
        return [device for device in self._all.values() if self._online(device.device_id)]

    @property
    def active(self) -> Device | None:
        """The one that is meant when none is named: the chosen one, else the only one that is connected, else the only
        one there is.
        """
        if self.chosen in self._all:
            return self._all[self.chosen]
        connected = self.connected()
        if connected:
            return connected[0] if len(connected) == 1 else None
        return next(iter(self._all.values())) if len(self._all) == 1 else None

    def find(self, selector: str | None) -> tuple[Device, str | None]:
        """The device, and the alias by which it was named. A whole name goes before a word of one, and then those
        that are connected come first.

        Raises DeviceUnknown, AmbiguousDevice, and DeviceOffline where there is none at all.
        """
        if selector is None:
            if (active := self.active) is not None:
                return active, None
            raise AmbiguousDevice() if self._all else DeviceOffline(NOBODY)
        if (named := self._all.get(selector)) is not None:
            return named, None
        if len(selector) > MAX_SELECTOR:
            raise DeviceUnknown("no bridge device has so long a name")
        plain = _plain(selector)
        found = [device for device in self._all.values() if _plain(device.name) == plain]
        found = found or [device for device in self._all.values() if device.is_called(plain)]
        found = [device for device in found if self._online(device.device_id)] or found
        if not found:
            raise DeviceUnknown(f"Unknown bridge device selector: {selector}")
        if len(found) > 1:
            raise AmbiguousDevice(f"Ambiguous bridge device selector: {selector}")
        return found[0], selector
