"""The crash matrix: what must become of a turn of each way, in each state, under each fault, and what did."""

from __future__ import annotations

from tests.hermes.ways import kind

WAYS = ("dashboard", "session_stream", "runs", "completions")
STATES = ("accepted", "submitting", "running", "ending")
RELAY_KILLED, CUT, RESTARTED, KILLED = FAULTS = (
    "relay killed", "socket cut", "hermes restarted", "hermes killed",
)  # fmt: skip

Outcome = tuple[str, int]  # how it ended, and how often Hermes began it

DONE, LOST, BROKEN, REFUSED = ("completed", 1), ("uncertain", 0), ("interrupted", 1), ("failed", 0)

# What all ways have in common. `accepted` goes on; an end that was heard is found again.
_EVERY: dict[tuple[str, str], Outcome] = {(state, fault): DONE for state in ("accepted", "ending") for fault in FAULTS}
# Held before its first byte: after a kill nobody knows that it was before, so it is not sent again. Elsewhere it
# leaves late, over a line that works.
_EVERY |= {("submitting", RELAY_KILLED): LOST, ("submitting", RESTARTED): DONE, ("submitting", KILLED): DONE}
# Hermes has it, and the line broke before it said so; and in mid-answer.
_EVERY |= {("submitting", CUT): DONE, ("running", CUT): DONE, ("running", RELAY_KILLED): DONE}
_EVERY |= {("running", RESTARTED): BROKEN, ("running", KILLED): BROKEN}

_BUT: dict[tuple[str, str, str], Outcome] = {
    # the socket that it was bound to is gone: it never left
    ("dashboard", "submitting", RESTARTED): REFUSED,
    ("dashboard", "submitting", KILLED): REFUSED,
    # the dying gateway finishes what it runs, and stores it
    ("session_stream", "running", RESTARTED): DONE,
    ("runs", "running", RESTARTED): DONE,
    ("completions", "running", RESTARTED): DONE,
    # a drop interrupts it
    ("completions", "submitting", CUT): BROKEN,
    ("completions", "running", CUT): BROKEN,
    ("completions", "running", RELAY_KILLED): BROKEN,
}

CELLS: dict[tuple[str, str, str], Outcome] = {}  # (fault, way, state) → what became of it


def expected(fault: str, way: str, state: str) -> Outcome:
    return _BUT.get((kind(way), state, fault)) or _EVERY[(state, fault)]


def lines() -> list[str]:
    if not CELLS:
        return []
    rows: list[tuple[str, ...]] = [("upstream", "state", *FAULTS)]
    rows += [(way, state, *(_cell(fault, way, state) for fault in FAULTS)) for way in WAYS for state in STATES]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)) for row in rows]
    return ["", "crash matrix: the finish of the turn, and how often Hermes began it", *table]


def _cell(fault: str, way: str, state: str) -> str:
    if (found := CELLS.get((fault, way, state))) is None:
        return "-"
    return f"{found[0]} ×{found[1]}" + ("" if found == expected(fault, way, state) else " (!)")
