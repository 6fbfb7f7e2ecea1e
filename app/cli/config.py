"""`talaria config`: the settings in force and where each came from."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.show import complain, say_json, say_table
from app.settings import describe_settings, unknown_settings


def config(as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Show the settings in force and where each came from. Secrets are hidden."""
    settings = describe_settings()
    if as_json:
        say_json([setting.model_dump() for setting in settings])
    else:
        say_table(("SETTING", "VALUE", "FROM"), [(s.name, s.value or "(unset)", s.source) for s in settings])
    for name in unknown_settings():
        complain(f"{name} is no setting of Talaria: nothing reads it")
