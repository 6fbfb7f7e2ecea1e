"""The crash matrix as a table: what became of a turn of each way, in each state, under each fault."""

from __future__ import annotations

from dataclasses import dataclass, field

WAYS = ("dashboard", "session_stream", "runs", "completions")
STATES = ("accepted", "submitting", "running", "ending")
FAULTS = ("relay killed", "socket cut", "hermes restarted", "hermes killed")


@dataclass
class Matrix:
    """(fault, way, state) → how the turn ended, and how often its model was asked to begin."""

    cells: dict[tuple[str, str, str], tuple[str, int]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        if not self.cells:
            return []
        rows = [("upstream", "state", *FAULTS)]
        for way in WAYS:
            for state in STATES:
                rows.append((way, state, *(self._cell(fault, way, state) for fault in FAULTS)))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)) for row in rows]
        return ["", "crash matrix: finish of the turn × how often Hermes began it", *table]

    def _cell(self, fault: str, way: str, state: str) -> str:
        finish, times = self.cells.get((fault, way, state), ("-", 0))
        return finish if finish == "-" else f"{finish} ×{times}"


MATRIX = Matrix()


def lines() -> list[str]:
    return MATRIX.lines()
