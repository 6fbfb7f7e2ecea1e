"""`talaria config`: the settings in force and where each came from."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.client import CommandFailed, RelayClient
from app.cli.show import complain, note, say_json, say_table
from app.errors import Misconfigured
from app.settings import describe_settings, unknown_settings


def config(as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Show the settings in force and where each came from. Secrets are hidden."""
    settings = describe_settings()
    if as_json:
        say_json([setting.model_dump() for setting in settings])
    else:
        say_table(("SETTING", "VALUE", "FROM"), [(s.name, s.value or "(unset)", s.source) for s in settings])
        for line in _routes():
            note(line)
    for name in unknown_settings():
        complain(f"{name} is no setting of Talaria: nothing reads it")


def _routes() -> list[str]:
    """Which of its URLs each upstream is used by now, where a relay runs with these settings."""
    try:
        with RelayClient.of_settings() as relay:
            upstream = relay.get("/readyz")["upstream"]
    except (CommandFailed, Misconfigured):
        return []
    names = {"api": "TALARIA_HERMES_API", "dashboard": "TALARIA_HERMES_DASHBOARD"}
    suffixes = {"local": "_URL", "remote": "_REMOTE_URL"}
    return [
        f"In use now: {names[name]}{suffixes[state['route']]} ({state['route']})"
        for name, state in upstream.items() if name in names and state.get("route") in suffixes
    ]  # fmt: skip
