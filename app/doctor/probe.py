"""What the relay asks itself through its own public URL.

Each request carries a secret of this process, so that nobody else makes it stream or read, and the answer carries
another, so that it is known to be from this very process.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Mapping

ASKS = "X-Talaria-Probe"
ANSWERS = "X-Talaria-Probe-Answer"
HELD_S = 5.0  # a first piece that has not come by then is held back until the stream ends


class Probe:
    def __init__(self) -> None:
        self._asks, self.answer = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._seen = asyncio.Event()

    def headers(self) -> dict[str, str]:
        return {ASKS: self._asks}

    def asked(self, headers: Mapping[str, str]) -> bool:
        return hmac.compare_digest(headers.get(ASKS, "").encode("utf-8", "replace"), self._asks.encode())

    def is_ours(self, headers: Mapping[str, str]) -> bool:
        return hmac.compare_digest(headers.get(ANSWERS, "").encode("utf-8", "replace"), self.answer.encode())

    def begin(self) -> None:
        """A stream is about to be asked for."""
        self._seen.clear()

    def saw(self) -> None:
        """Its first piece has come."""
        self._seen.set()

    async def seen(self) -> bool:
        """Whether the first piece comes while the stream goes on: of two that come together, one was held back."""
        try:
            async with asyncio.timeout(HELD_S):
                await self._seen.wait()
        except TimeoutError:
            return False
        return True
