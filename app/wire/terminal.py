"""Payloads of terminal sessions. A `session_name` that is absent is the one this link attached last."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, StringConstraints

from app.wire.payloads import Payload

MOST = 1000  # columns and rows
USUAL = 80, 24
MAX_PAGE = 1000  # lines


def _size(value: object) -> object:
    """A terminal that is not laid out yet says 0, and stays at that: it has no size to give to others."""
    if isinstance(value, bool):
        raise ValueError("it must be a number")
    return (max(2, min(value, MOST)) if value > 0 else 0) if type(value) is int else value


Size = Annotated[int, BeforeValidator(_size)]
Name = Annotated[str, StringConstraints(max_length=256)]
Named = Annotated[Name | None, BeforeValidator(lambda value: None if value == "" else value)]


class _OfSession(Payload):
    session_name: Named = None


class TerminalAttach(_OfSession):
    """Without a name: a new session."""

    cols: Size = USUAL[0]
    rows: Size = USUAL[1]


class TerminalInput(_OfSession):
    """With `n`: `terminal.input_ack {n}` when all of it waits for the shell, in order."""

    data: str
    n: int | None = Field(None, ge=0, le=2**53)


class TerminalResize(_OfSession):
    cols: Size
    rows: Size


class TerminalDetach(_OfSession):
    pass


class TerminalKill(_OfSession):
    pass


class TerminalRename(_OfSession):
    new_name: Name


class TerminalScrollback(_OfSession):
    """The `lines` lines before line number `before`, or the newest."""

    before: int | None = Field(None, ge=0, le=2**53)
    lines: int = Field(200, ge=1, le=MAX_PAGE)
