"""Streams that a real Hermes sent, and the rows it stored for them. `later_` are of versions after 0.19."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from app.hermes.events import read
from app.turns.fold import fold
from app.turns.state import Event, TurnState
from app.wire.sse import SseSplitter

CAPTURES = Path(__file__).parent / "captures"
NAMES = sorted(path.stem for path in CAPTURES.glob("*.sse"))
NOW = 1_800_000_000.0


def stream(name: str) -> bytes:
    return (CAPTURES / f"{name}.sse").read_bytes()


def rows(name: str) -> list[dict[str, Any]]:
    """All rows of a session in which nothing but this turn happened."""
    found: list[dict[str, Any]] = json.loads((CAPTURES / f"{name}.rows.json").read_text())
    return found


def session_of(raw: bytes) -> str:
    first = SseSplitter().feed(raw)[0]
    return str(json.loads(first[1])["session_id"])


def folded(raw: bytes, cuts: Sequence[int] = (), *, now: float = NOW) -> tuple[TurnState, list[Event]]:
    """The state and the frames that a stream leads to, read in pieces that end at these places."""
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    state, splitter = TurnState(session_of(raw), now), SseSplitter()
    out: list[Event] = []
    for begin, end in pairwise(edges):
        for name, body in map(read, splitter.feed(raw[begin:end])):
            out += fold(state, name, body, now)
    return state, out
