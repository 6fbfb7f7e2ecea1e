"""Which frames are worth a push, and when: what the owner of a device wants. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from app.outbox.kinds import KINDS
from app.outbox.wakes import Unseen

MIN_TURN_S = 10.0  # whoever waits less than that is still looking
ClockTime = Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class _Wishes(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, populate_by_name=True)


def _known(names: Sequence[str]) -> None:
    if unknown := set(names) - KINDS.keys():
        raise ValueError(f"there is no kind {sorted(unknown)[0]!r}; kinds are {', '.join(KINDS)}")


class Quiet(_Wishes):
    """No push between these times of the day in that zone, but for the kinds in `except`."""

    start: ClockTime = Field(alias="from")
    end: ClockTime = Field(alias="to")
    zone: str = Field(max_length=64)
    but: tuple[str, ...] = Field((), alias="except")

    @field_validator("zone")
    @classmethod
    def _zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("zone must be one of the IANA database, such as Europe/Berlin") from None
        return name

    @model_validator(mode="after")
    def _sensible(self) -> Quiet:
        _known(self.but)
        if self.start == self.end:
            raise ValueError("from and to must differ; to have no push at all, switch the kinds off")
        return self

    def until(self, now: float) -> float | None:
        """When the quiet time ends that `now` is in; None if it is in none."""
        local = datetime.fromtimestamp(now, ZoneInfo(self.zone))
        start, end, clock = time.fromisoformat(self.start), time.fromisoformat(self.end), local.time()
        if start < end:
            inside, days = start <= clock < end, 0
        else:
            inside, days = clock >= start or clock < end, int(clock >= start)
        if not inside:
            return None
        ends = datetime.combine(local.date() + timedelta(days=days), end, local.tzinfo).timestamp()
        return ends if ends > now else now + 60  # the latter in the hour that a change of the clocks repeats


class Preferences(_Wishes):
    """What a device wants; everything has a default."""

    kinds: dict[str, bool] = Field(default_factory=dict)  # those that are not named are on
    quiet: Quiet | None = None
    min_turn_s: float = Field(MIN_TURN_S, ge=0, le=86400)

    @field_validator("kinds")
    @classmethod
    def _kinds(cls, kinds: dict[str, bool]) -> dict[str, bool]:
        _known(list(kinds))
        return kinds

    @property
    def silent(self) -> bool:
        return not any(self.kinds.get(kind, True) for kind in KINDS)

    def worth(self, frames: Sequence[Unseen]) -> list[Unseen]:
        return [frame for frame in frames if self.kinds.get(frame.kind, True) and not self._is_short(frame)]

    def waits_until(self, frames: Sequence[Unseen], now: float) -> float | None:
        """When a push about these may go out; None: now."""
        if self.quiet is None or any(frame.kind in self.quiet.but for frame in frames):
            return None
        return self.quiet.until(now)

    def as_json(self) -> dict[str, object]:
        whole = self.model_dump(mode="json", by_alias=True)
        return whole | {"kinds": {kind: self.kinds.get(kind, True) for kind in KINDS}}

    def _is_short(self, frame: Unseen) -> bool:
        return frame.kind == "turn" and frame.duration_s is not None and frame.duration_s < self.min_turn_s
