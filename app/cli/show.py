"""How the command talks: results to standard output, everything else to standard error, readable at 80 columns."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

DAY = 86400


def say(text: str = "") -> None:
    print(text, flush=True)


def can_show(text: str) -> bool:
    """Whether standard output has every character of it; what it lacks it shows as question marks."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def note(text: str) -> None:
    """For people, beside the result."""
    print(text, file=sys.stderr, flush=True)


def wrapped(text: str) -> str:
    """At 80 columns; a command in backticks stays on one line, so that it can be copied."""
    kept = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\xa0"), text)
    return textwrap.fill(kept, 80, break_long_words=False, break_on_hyphens=False).replace("\xa0", " ")


def complain(text: str) -> None:
    note(wrapped(f"talaria: {text}"))


def say_json(value: Any) -> None:
    """One document, one line."""
    say(json.dumps(value))


def say_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Cells wrap rather than end in dots: a name that was cut cannot be copied."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    console = Console(highlight=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    say("\n".join(line.rstrip() for line in captured.get().splitlines()))


def printable(text: str) -> str:
    """Names come from phones: none may move the cursor of the operator's terminal."""
    return "".join(char if char.isprintable() else "�" for char in text)


def duration(seconds: float | None) -> str:
    """`30 days`, `2 hours`, `never ends` for None: the largest unit that fits without a fraction."""
    if seconds is None:
        return "never ends"
    whole = round(seconds)
    for unit, size in (("day", DAY), ("hour", 3600), ("minute", 60)):
        if whole >= size and (whole % size == 0 or whole >= 2 * size):
            count = whole // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{whole} second{'' if whole == 1 else 's'}"


def clock_time(epoch: float) -> str:
    return datetime.fromtimestamp(epoch).astimezone().strftime("%H:%M")


def date(epoch: float | None) -> str:
    return "never" if epoch is None else datetime.fromtimestamp(epoch).astimezone().strftime("%Y-%m-%d %H:%M")


def listed(names: Sequence[str]) -> str:
    """`chat, terminal and bridge`"""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
