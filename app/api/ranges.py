"""Which bytes of a file a request wants (RFC 9110 §13 and §14). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

# No blank is given back: two runs of them side by side can be split in so many ways that it takes hours.
_ONE = re.compile(r"bytes[ \t]*+=[ \t]*+([0-9]{0,18})[ \t]*+-[ \t]*+([0-9]{0,18})[ \t]*+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from `start` up to `end`, which is not in it."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Unsatisfiable(Exception):
    """No byte of the file is in the range."""


def span_of(wanted: str | None, if_range: str | None, size: int, etag: str) -> Span | None:
    """None: the whole. So is what is no range of bytes, and several at once. Raises Unsatisfiable."""
    match = _ONE.fullmatch(wanted or "")
    if match is None or (if_range is not None and if_range.strip() != etag):
        return None
    first, last = match.groups()
    if not first:
        return _suffix(int(last), size) if last else None
    start, end = int(first), int(last) + 1 if last else size
    if end <= start and last:
        return None
    if start >= size:
        raise Unsatisfiable
    return Span(start, min(end, size))


def _suffix(count: int, size: int) -> Span:
    if not count or not size:
        raise Unsatisfiable
    return Span(max(0, size - count), size)


def is_known(if_none_match: str | None, etag: str) -> bool:
    """Whether the caller has it already."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or "*" in tags
