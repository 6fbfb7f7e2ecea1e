"""Messages that Hermes does not store as they were sent: it looks up what they refer to, and drops marks of a paste."""

from __future__ import annotations

import re

_REFERENCE = r"@(?:diff\b|staged\b|(?:file|folder|git|url):(?:`[^`\n]+`|\"[^\"\n]+\"|'[^'\n]+'|\S+))"
_NOT_STORED = re.compile(rf"{_REFERENCE}|\[?2?0[01]~")
_ADDED = re.compile(r"--- (?:Attached Context|Context Warnings) ---")


def is_stored_as(sent: str, stored: str) -> bool:
    """Whether `stored` may be what became of a message that Hermes changes; False for one that it does not change."""
    return _NOT_STORED.search(sent) is not None and _words(sent) == _words(_ADDED.split(stored, maxsplit=1)[0])


def ends_with(said: str, sent: str) -> bool:
    """Whether this message is the last of those that Hermes put behind one another, for they wait for the same turn."""
    return sent != "" and (said.endswith(sent) or is_stored_as(sent, said))


def _words(text: str) -> str:
    """Hermes also closes the gaps that it makes, spaces and points."""
    return re.sub(r"\W+", "", _NOT_STORED.sub("", text))
