"""`talaria token`: the operator's token, for scripts that call the relay themselves."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from app.cli.client import operator_token
from app.cli.show import note, say
from app.sessions.operator import rotate
from app.settings import load_settings


def token(
    which: Annotated[Literal["operator"], typer.Argument(help="Which token.")] = "operator",
    new: Annotated[
        bool, typer.Option("--rotate", help="Make a new one; the old one ends at once, also in a running relay.")
    ] = False,
) -> None:
    """Print the operator token. Whoever holds it may do everything: keep it from logs and histories."""
    data_dir = load_settings().server.data_dir
    found = operator_token(data_dir)
    if new:
        found = rotate(data_dir)
        note("The old operator token has ended.")
    say(found)
