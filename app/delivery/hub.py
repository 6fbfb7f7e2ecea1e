"""The open links of this node, by device and by session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.delivery.peer import Grants, Peer
from app.wire import close


class Hub:
    """Links join once they are authenticated and leave when they close."""

    def __init__(self) -> None:
        self._devices: dict[str, dict[int, Peer]] = {}
        self.rings = 0  # so far: who looked at a mailbox before can tell that nothing came since

    def join(self, peer: Peer) -> None:
        """A newer link of the same device and instance supersedes the older one."""
        links = self._devices.setdefault(peer.device_id, {})
        if peer.instance is not None:
            for older in [p for p in links.values() if p.instance == peer.instance]:
                older.end(close.SUPERSEDED, "superseded")
        links[peer.link_id] = peer

    def leave(self, peer: Peer) -> None:
        links = self._devices.get(peer.device_id)
        if links is not None and links.pop(peer.link_id, None) is not None and not links:
            del self._devices[peer.device_id]

    def of_device(self, device_id: str) -> tuple[Peer, ...]:
        return tuple(self._devices.get(device_id, {}).values())

    def ring(self, devices: Iterable[str]) -> None:
        """The bell of `keep`: wakes the pumps of these devices."""
        self.rings += 1
        for device_id in devices:
            for peer in self.of_device(device_id):
                peer.ring()

    def end_session(self, session_id: str, reason: str) -> None:
        for peer in list(self):
            if peer.session_id == session_id:
                peer.end(close.CREDENTIAL_REFUSED, reason)

    def regrant_session(self, session_id: str, grants: Grants) -> None:
        for peer in self:
            if peer.session_id == session_id:
                peer.regrant(grants)

    def __iter__(self) -> Iterator[Peer]:
        for links in list(self._devices.values()):
            yield from list(links.values())

    def __len__(self) -> int:
        return sum(map(len, self._devices.values()))
