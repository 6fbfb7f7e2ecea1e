"""`talaria token`: the operator's token, and that of the agent's tools, for scripts that call the relay themselves."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from app.cli.client import host_token
from app.cli.show import note, say
from app.sessions.operator import LinkToken, OperatorToken
from app.settings import load_settings

KINDS = {"operator": OperatorToken, "link": LinkToken}


def token(
    which: Annotated[
        Literal["operator", "link"], typer.Argument(help="operator may do everything; link is for the agent's tools.")
    ] = "operator",
    new: Annotated[
        bool, typer.Option("--rotate", help="Make a new one; the old one ends at once, also in a running relay.")
    ] = False,
) -> None:
    """Print a token. Whoever holds the operator's may do everything: keep it from logs and histories."""
    data_dir, kind = load_settings().server.data_dir, KINDS[which]
    found = host_token(data_dir, kind)
    if new:
        found = kind.rotate(data_dir)
        note(f"The old {which} token has ended.")
    say(found)
