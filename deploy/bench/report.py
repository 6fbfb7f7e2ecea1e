"""Figures as rows: what was aimed at, what was measured, and what it was measured beside."""

from __future__ import annotations

import dataclasses
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

NOISY = 15.0  # percent of a core that everyone else used: above it a figure says little


@dataclass(frozen=True, slots=True)
class Aim:
    """`of` "ratio": measured divided by peer."""

    bound: Literal["≥", "≤"]
    value: float
    of: Literal["measured", "ratio"] = "measured"

    def met(self, row: Row) -> bool:
        value = row.ratio if self.of == "ratio" else row.measured
        assert value is not None
        return value >= self.value if self.bound == "≥" else value <= self.value

    def __str__(self) -> str:
        return f"{self.bound} {number(self.value)}{' ×' if self.of == 'ratio' else ''}"


def at_least(value: float, of: Literal["measured", "ratio"] = "measured") -> Aim:
    return Aim("≥", value, of)


def at_most(value: float, of: Literal["measured", "ratio"] = "measured") -> Aim:
    return Aim("≤", value, of)


@dataclass(frozen=True, slots=True)
class Row:
    figure: str
    unit: str
    measured: float
    aim: Aim | None = None
    peer: float | None = None
    peer_name: str = ""
    note: str = ""
    others: float = 0.0  # percent of a core that everyone else used meanwhile
    runs: dict[str, Sequence[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return self.measured / self.peer if self.peer else None

    @property
    def verdict(self) -> str:
        said = "" if self.aim is None else "met" if self.aim.met(self) else "MISSED"
        return " ".join(filter(None, (said, f"(noisy {self.others:.0f} %)" if self.others > NOISY else "")))

    def as_json(self) -> dict[str, Any]:
        known = dataclasses.asdict(self) | {"ratio": self.ratio, "verdict": self.verdict}
        return known | {"aim": str(self.aim) if self.aim else None}


def compared(
    figure: str, unit: str, ours: Sequence[float], peer: Sequence[float], peer_name: str, *,
    aim: Aim | None = None, others: float = 0.0, note: str = "",
) -> Row:  # fmt: skip
    """Medians of runs that took turns."""
    return Row(
        figure, unit, statistics.median(ours), aim, statistics.median(peer), peer_name, note, others,
        {"ours": ours, peer_name: peer},
    )  # fmt: skip


HEADER = ("figure", "aim", "measured", "unit", "beside it", "ratio", "verdict", "note")
LEFT = {0, 3, 6, 7}


def table(rows: Iterable[Row]) -> str:
    cells = [HEADER, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(c.ljust(w) if n in LEFT else c.rjust(w) for n, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    peer = "" if row.peer is None else f"{number(row.peer)} {row.peer_name}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return (row.figure, str(row.aim or ""), number(row.measured), row.unit, peer, ratio, row.verdict, row.note)


def number(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
