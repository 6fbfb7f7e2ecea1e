"""Which commands there are. Each lives in a file of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from app import __version__
from app.cli.backup import backup, restore_command
from app.cli.config import config
from app.cli.confirm import confirm
from app.cli.demo import demo
from app.cli.devices import devices
from app.cli.doctor import doctor
from app.cli.hermes_plugin import hermes_plugin
from app.cli.keys import keys
from app.cli.pair import pair
from app.cli.push import push
from app.cli.send import send
from app.cli.serve import serve
from app.cli.token import token

app = typer.Typer(
    help="A self-hosted relay that puts the Hermes Agent of a home server on its owner's phone.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they print local names with their values
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"talaria {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(serve)
app.command()(demo)
app.command()(pair)
app.command()(confirm)
app.add_typer(devices, name="devices")
app.command()(send)
app.add_typer(push, name="push")
app.add_typer(hermes_plugin, name="hermes-plugin")
app.command()(doctor)
app.command()(backup)
app.command("restore")(restore_command)
app.command()(config)
app.command()(token)
app.add_typer(keys, name="keys")
