"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from app.errors import Layer

State = Literal["ok", "warn", "fail", "skip"]  # skip: it could not be looked at, and `says` why


@dataclass(frozen=True, slots=True)
class Finding:
    """`says` what it means, for people; `do` is the next thing to type or to set, where something is wrong."""

    name: str
    state: State
    says: str
    do: str | None = None
    layer: Layer = "relay"

    def as_json(self) -> dict[str, Any]:
        found = {"name": self.name, "layer": self.layer, "state": self.state, "says": self.says}
        return found | ({"do": self.do} if self.do else {})


def failed(findings: list[Finding]) -> bool:
    return any(finding.state == "fail" for finding in findings)
