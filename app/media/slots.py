"""How many files may be on their way at once, of all and of one sender: each holds memory and a descriptor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import Overloaded


class Slots:
    """Over the bound a caller is told to come back; nothing waits here."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, sender: str) -> Iterator[None]:
        """Raises Overloaded."""
        if self._taken.total() >= self._total or self._taken[sender] >= self._each:
            raise Overloaded("too many files are on their way at once; try again shortly", retry_after=1)
        self._taken[sender] += 1
        try:
            yield
        finally:
            self._taken[sender] -= 1
            if not self._taken[sender]:
                del self._taken[sender]
