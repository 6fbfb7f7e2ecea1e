"""`talaria hermes-plugin`: put the platform plugin into a Hermes home, and take it away again."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.client import CommandFailed, host_token, own_url
from app.cli.hermes_home import HermesHome
from app.cli.show import note, say, wrapped
from app.sessions.operator import LinkToken
from app.settings import load_settings

OLDEST = (0, 19)  # the first version whose plugin interface has been tried
HOME_CHAT = "home"

hermes_plugin = typer.Typer(
    help="Let Hermes's messaging gateway (cron, notices, slash commands) speak to the phone.", no_args_is_help=True
)

Home = Annotated[
    Path | None, typer.Option("--hermes-home", envvar="HERMES_HOME", help="Hermes's state directory (~/.hermes).")
]


@hermes_plugin.command()
def install(
    hermes_home: Home = None,
    url: Annotated[str | None, typer.Option(help="Where Hermes reaches this relay; else on this host.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="The link token (- reads it); else of this data dir.")] = None,
    home_channel: Annotated[str, typer.Option(help="The chat that cron and notices go to.")] = HOME_CHAT,
    mcp: Annotated[
        bool | None, typer.Option("--mcp/--no-mcp", help="The phone as tools for the agent; as it was if unsaid.")
    ] = None,
) -> None:
    """Copy the plugin and write the settings it needs. Run it again after an upgrade of Talaria."""
    home = _home(hermes_home)
    home.check()
    _check_version()
    env = {
        "TALARIA_LINK_URL": _url(url), "TALARIA_LINK_TOKEN": _token(token_file), "TALARIA_HOME_CHANNEL": home_channel
    }  # fmt: skip
    tools = home.has_server() if mcp is None else mcp
    home.install(env, _mcp_url(env["TALARIA_LINK_URL"]) if tools else None)
    say(f"The plugin is in {home.plugin}.")
    if tools:
        note(wrapped("The agent has the phone as tools, if Hermes is installed with its extra: `hermes-agent[mcp]`."))
    if others := home.others():
        note(wrapped(f"Not touched: {', '.join(others)}. `hermes plugins list` says which are enabled."))
    note(wrapped(f"Hermes dials {env['TALARIA_LINK_URL']}. Restart its gateway: `hermes gateway restart`."))


@hermes_plugin.command()
def uninstall(hermes_home: Home = None) -> None:
    """Take the plugin and its settings out again, and leave everything else as it was."""
    home = _home(hermes_home)
    home.check()
    waiting = home.waiting()
    if not home.uninstall():
        note(f"There is no plugin of Talaria in {home.path}.")
        return
    if waiting:
        note(wrapped(f"{waiting} messages that the relay had not got yet are gone with it."))
    say(f"The plugin is gone from {home.path}.")
    note(wrapped("Restart Hermes's gateway: `hermes gateway restart`."))


def _home(given: Path | None) -> HermesHome:
    return HermesHome((given or Path.home() / ".hermes").expanduser().absolute())


def _url(given: str | None) -> str:
    url = (given or own_url(load_settings().server)).rstrip("/")
    if not re.fullmatch(r"(?:https?|wss?)://[^\s#'\"]+", url):
        raise CommandFailed(f"{url} is no address of a relay: it looks like http://127.0.0.1:8767")
    return url


def _mcp_url(link: str) -> str:
    return f"http{link.removeprefix('http').removeprefix('ws')}/mcp"


def _token(file: Path | None) -> str:
    if file is None:
        try:
            return host_token(load_settings().server.data_dir, LinkToken)
        except CommandFailed as exc:
            do = "If Hermes has another user, put what `talaria token link` prints into a file for --token-file"
            raise CommandFailed(f"{exc.message}. {do}") from None
    try:
        token = (sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")).strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise CommandFailed(f"{file} cannot be read: {exc}") from None
    if not re.fullmatch(r"[\w.~+/=-]{16,}", token):
        where = "standard input" if str(file) == "-" else file
        raise CommandFailed(f"{where} holds no link token: `talaria token link` prints it")
    return token


def _check_version() -> None:
    """Hermes says it itself where it is on the PATH. Raises CommandFailed for one that is too old."""
    hermes = shutil.which("hermes")
    if hermes is None:
        note(wrapped("hermes is not on the PATH, so its version is not known; the plugin needs 0.19 or newer."))
        return
    try:
        said = subprocess.run(  # noqa: S603 - the owner's own command
            [hermes, "--version"], capture_output=True, text=True, timeout=30, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None:
        note("hermes does not tell its version; the plugin needs 0.19 or newer.")
    elif (int(found[1]), int(found[2])) < OLDEST:
        raise CommandFailed(f"this Hermes is {found[0]}; the plugin needs 0.19 or newer. Update it: `hermes update`")
