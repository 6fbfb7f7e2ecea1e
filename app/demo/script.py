"""From the words of a message to what the answer will do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from app.demo import texts

Ending = Literal["completed", "nothing", "done", "failed", "error"]
SAY = re.compile(r"\bSAY:([^\n]*)")
NUMBER = re.compile(r"\b(WORDS|DELAY):(\d+(?:\.\d+)?)")
BENCH = re.compile(r"bench:(\d+):(\d+(?:\.\d+)?)(?::(\d+))?")
CUT = re.compile(r"cut:(\d+)")
REFUSE = re.compile(r"http(429|500|503)")
AROUND = ".,;!?()\"'`*"


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call: its arguments, the one-line preview, and the JSON text it returns."""

    name: str
    args: Mapping[str, Any]
    preview: str
    result: str


@dataclass(frozen=True, slots=True)
class Step:
    """One request to the model: what it says, then the tools it calls."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Bench:
    count: int
    interval_ms: float
    padding: int  # bytes


@dataclass(frozen=True, slots=True)
class Script:
    """Everything an answer does. `pace` multiplies the agent's usual delay; `delay_s` replaces it."""

    steps: tuple[Step, ...] = ()
    pace: float = 1.0
    delay_s: float | None = None
    ending: Ending = "completed"
    reasoning: str | None = None
    cut: int | None = None
    refuse: int | None = None
    bench: Bench | None = None
    gated: bool = False
    split: bool = False
    lost: bool = False
    moved: bool = False
    custom: bool = False
    keepalive: bool = False


def read_script(message: str) -> Script:
    """The first word that picks an answer wins; markers add to it."""
    said = SAY.search(message)
    rest = SAY.sub("", message)  # what is to be said must not steer how
    numbers = {name: float(value) for name, value in NUMBER.findall(rest)}
    marks = [word.strip(AROUND) for word in rest.lower().split()]
    steps, pace, ending = _answer(message, said.group(1) if said else None, numbers.get("WORDS"), marks)
    if "nodone" in marks:
        ending = "nothing"
    elif "done-only" in marks:
        ending = "done"
    return Script(
        steps=steps,
        pace=pace,
        delay_s=numbers["DELAY"] / 1000 if "DELAY" in numbers else None,
        ending=ending,
        reasoning=texts.REASONING if "reasoning" in marks else None,
        cut=_number(CUT, marks),
        refuse=_number(REFUSE, marks),
        bench=_bench(marks),
        **{flag: flag in marks for flag in ("gated", "split", "lost", "moved", "custom", "keepalive")},
    )


def _answer(
    message: str, say: str | None, words: float | None, marks: list[str]
) -> tuple[tuple[Step, ...], float, Ending]:
    if say is not None:
        return (Step(say.strip().replace("\\n", "\n")),), 1.0, "completed"
    if words is not None:
        return (Step(" ".join(f"w{n}" for n in range(1, int(words) + 1))),), 1.0, "completed"
    match next((mark for mark in marks if mark in texts.WORDS), "split" if "split" in marks else ""):
        case "tools":
            return _tools(), 1.0, "completed"
        case "markdown":
            return (Step(texts.MARKDOWN),), 1.0, "completed"
        case "slow":
            return (Step(texts.SLOW),), 12.0, "completed"
        case "long":
            return (Step(texts.long()),), 0.2, "completed"
        case "unicode" | "split":
            return (Step(texts.UNICODE),), 1.0, "completed"
        case "fail":
            return (), 1.0, "failed"
        case "error":
            return (), 1.0, "error"
        case "help":
            return (Step(texts.guide()),), 0.4, "completed"
    return (Step(texts.plain(message)),), 1.0, "completed"


def _tools() -> tuple[Step, ...]:
    found = {
        "success": True,
        "data": {"web": [{"title": "Talaria", "url": "https://example.org/talaria", "description": "Winged sandals."}]},
    }
    terminal = Call(
        "terminal",
        {"command": "uname -n"},
        "uname -n",
        _json({"output": "stand-in", "exit_code": 0, "error": None}),
    )
    search = Call("web_search", {"query": "talaria", "limit": 1}, "talaria", _json(found))
    return (Step(texts.TOOLS_BEFORE, (terminal,)), Step(texts.TOOLS_BETWEEN, (search,)), Step(texts.TOOLS_AFTER))


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


def _number(pattern: re.Pattern[str], marks: list[str]) -> int | None:
    return next((int(found.group(1)) for mark in marks if (found := pattern.fullmatch(mark))), None)


def _bench(marks: list[str]) -> Bench | None:
    for mark in marks:
        if found := BENCH.fullmatch(mark):
            return Bench(int(found.group(1)), float(found.group(2)), int(found.group(3) or 0))
    return None
