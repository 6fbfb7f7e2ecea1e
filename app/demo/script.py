"""What an answer does, step by step: the vocabulary between reading a message and playing the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Ending = Literal["completed", "nothing", "done", "failed", "error"]


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person must allow before the call runs."""

    command: str
    description: str

    def as_json(self) -> dict[str, Any]:
        """As every way of asking shows it, without its choices."""
        return {
            "command": self.command,
            "pattern_key": self.description,
            "pattern_keys": [self.description],
            "description": self.description,
            "allow_permanent": True,
        }


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call: its arguments, the one-line preview, and the JSON text it returns unless it asks first."""

    name: str
    args: Mapping[str, Any]
    preview: str
    result: str = ""
    ask: Approval | Question | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A call that has run. `outcome` is what a person chose or answered."""

    call: Call
    result: str
    outcome: str = ""


Text: TypeAlias = str | Callable[[Sequence[Done]], str]


@dataclass(frozen=True, slots=True)
class Step:
    """One request to the model: what it thinks, what it says of the results so far, then the tools it calls."""

    text: Text
    calls: tuple[Call, ...] = ()
    reasoning: str | None = None
    together: bool = False  # the calls run at the same time


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
    cut: int | None = None
    refuse: int | None = None
    bench: Bench | None = None
    gated: bool = False
    split: bool = False
    lost: bool = False
    moved: bool = False
    custom: bool = False
    keepalive: bool = False
