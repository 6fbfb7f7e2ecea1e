"""`talaria demo`: a relay with a stand-in Hermes inside, ready to be talked to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from app.cli.client import RelayClient
from app.cli.pair import mint, show_offer
from app.cli.serve import Stoppable, prepare
from app.cli.show import note, say
from app.settings import Settings, describe_settings, load_settings

HELLO = "Hello! Show me your tools."


def demo(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default: TALARIA_PORT; else a free one.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the data here. Default: a directory that ends with it.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Talk to itself, print the conversation, and exit.")] = False,
    ask: Annotated[str, typer.Option(metavar="TEXT", help="What --once says.")] = HELLO,
) -> None:
    """Try Talaria without a Hermes: everything is real but the agent."""
    from app.demo.client import converse
    from app.demo.run import run_demo

    with ExitStack() as stack:
        directory = data_dir or Path(stack.enter_context(TemporaryDirectory(prefix="talaria-demo-")))
        settings = _settings(directory, port)
        prepare(settings)
        stop = stack.enter_context(Stoppable())
        answers: list[bool] = []

        async def ready(url: str) -> None:
            stop.serving = True
            offer = await asyncio.to_thread(_offer, directory, url)
            if once:
                answers.append(await converse(url, offer["code"], ask))
            else:
                _invite(offer, url)

        run_demo(settings, ready, once=once)
    if once and answers != [True]:
        raise typer.Exit(1)


def _settings(data_dir: Path, port: int | None) -> Settings:
    """The owner's, so that a public URL works here too; but only warnings are logged unless more was asked for."""
    from app.demo.run import is_free

    settings = load_settings()
    wanted = settings.server.port if port is None else port
    if wanted and not is_free(settings.server.host, wanted):
        note(f"Port {wanted} is taken; the demo takes a free one.")
        wanted = 0
    server = settings.server.model_copy(update={"data_dir": data_dir, "port": wanted, "database_url": None})
    logs = settings.logs
    if any(setting.name == "TALARIA_LOG_LEVEL" and setting.source == "default" for setting in describe_settings()):
        logs = logs.model_copy(update={"log_level": "warning"})
    return settings.model_copy(update={"server": server, "logs": logs})


def _offer(data_dir: Path, url: str) -> dict[str, Any]:
    with RelayClient(data_dir, url) as relay:
        return mint(relay)


def _invite(offer: Mapping[str, Any], url: str) -> None:
    say(f"Talaria's demo listens on {url}, with a stand-in for Hermes behind it.\n")
    show_offer(offer)
    say("\nOpen the link and talk. Ctrl-C ends the demo.")
    say("Say for example: clean up the old logs, help me choose a colour, or show me your tools.")
