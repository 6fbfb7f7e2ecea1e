"""What the relay asks itself through its own public URL.

Each request carries a secret of this process, so that nobody else makes it stream or read, and the answer carries
another, so that it is known to be from this very process.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

ASKS = "X-Talaria-Probe"
ANSWERS = "X-Talaria-Probe-Answer"
PIECES = 2
PAUSE_S = 0.5  # between the pieces of the stream


class Probe:
    def __init__(self) -> None:
        self._asks, self.answer = secrets.token_urlsafe(24), secrets.token_urlsafe(24)

    def headers(self) -> dict[str, str]:
        return {ASKS: self._asks}

    def asked(self, headers: Mapping[str, str]) -> bool:
        return hmac.compare_digest(headers.get(ASKS, "").encode("utf-8", "replace"), self._asks.encode())

    def is_ours(self, headers: Mapping[str, str]) -> bool:
        return hmac.compare_digest(headers.get(ANSWERS, "").encode("utf-8", "replace"), self.answer.encode())
