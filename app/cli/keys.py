"""`talaria keys`: the keys that sign session tokens."""

from __future__ import annotations

import typer

from app.cli.client import RelayClient
from app.cli.show import say

keys = typer.Typer(help="The keys that sign session tokens.", no_args_is_help=True, rich_markup_mode=None)


@keys.callback()
def _group() -> None:
    pass


@keys.command()
def rotate() -> None:
    """Sign with a new key. Paired devices stay paired: an old key goes when no live session needs it."""
    with RelayClient.of_settings() as relay:
        made = relay.post("/keys/rotate", {})
    say(f"Key {made['kid']} signs from now on.")
    if made["gone"]:
        say(f"No session needed {', '.join(made['gone'])} any more.")
