"""Who wants to know as soon as something becomes of an offer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Watchers:
    def __init__(self) -> None:
        self._of_offer: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def watching(self, offer_id: str) -> Iterator[asyncio.Event]:
        """Set whenever something becomes of the offer."""
        changed = asyncio.Event()
        watching = self._of_offer.setdefault(offer_id, set())
        watching.add(changed)
        try:
            yield changed
        finally:
            watching.discard(changed)
            if not watching:
                self._of_offer.pop(offer_id, None)

    def wake(self, offer_id: str) -> None:
        for changed in self._of_offer.get(offer_id, ()):
            changed.set()

    def wake_all(self) -> None:
        for offer_id in self._of_offer:
            self.wake(offer_id)
