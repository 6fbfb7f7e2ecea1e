"""Which commands there are. Each lives in a file of its own."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

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

ORDER = (
    "serve", "demo", "pair", "confirm", "devices", "send", "push", "doctor", "config", "token", "keys", "backup",
    "restore", "hermes-plugin",
)  # fmt: skip


class InOrder(TyperGroup):
    """Typer puts commands that have commands of their own last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    cls=InOrder,
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


# A line each in `talaria --help`, so none may be longer than what 80 columns leave of it.
app.command()(serve)
app.command(short_help="Try it without a Hermes: only the agent is a stand-in.")(demo)
app.command(short_help="Pair a phone by a QR code, a link or a code.")(pair)
app.command(short_help="Let a device in that waits with six digits.")(confirm)
app.add_typer(devices, name="devices")
app.command(short_help="Send a message to the paired phones.")(send)
app.add_typer(push, name="push")
app.command(short_help="Look at everything the relay needs; say what to do.")(doctor)
app.command(short_help="Show the settings in force and where each came from.")(config)
app.command(short_help="Print the operator's token or the link's, or exchange it.")(token)
app.add_typer(keys, name="keys")
app.command(short_help="Copy the database and the keys into one file.")(backup)
app.command("restore", short_help="Put a backup in the place of what is there.")(restore_command)
app.add_typer(hermes_plugin, name="hermes-plugin", short_help="Let Hermes speak first: cron, notices, slash commands.")
