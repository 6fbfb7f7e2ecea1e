"""The phone as eyes and hands: which device is meant, whether its owner agrees, and what it answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.bridge.commands import Command


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` as over HTTP: below 400 it was done. `body` is `result` as JSON; a result that is no object is its
    `value`.
    """

    status: int
    result: dict[str, Any]
    device_id: str
    body: bytes


class Bridge:
    async def ask(
        self, command: Command, args: Mapping[str, Any], *, device: str | None = None, caller: str,
        timeout_s: float | None = None, params: Mapping[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        """Ask one phone and return its answer, a refusal of its own (status 4xx, 5xx) included.

        `device` is an id or an alias; None: the chosen one, or the only one. `caller` is for the record: operator,
        link, mcp or a session. The deadline, `timeout_s` seconds from now (from the approval, where one is needed), is
        the command's own unless given. `params` are a query beside the arguments of a POST.

        Raises DeviceUnknown, AmbiguousDevice, DeviceOffline, CallTimeout, Denied, CommandUnsupported,
        ResponseTooLarge, Overloaded and Draining.
        """
        raise NotImplementedError
