"""The terminals as the settings want them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.clock import Clock
from app.db import Database
from app.settings import SshSettings, TerminalSettings, inherited_environment
from app.tasks import Supervisor
from app.terminal.host import Host
from app.terminal.local import Local
from app.terminal.service import Terminals


@asynccontextmanager
async def open_terminals(
    settings: TerminalSettings, ssh: SshSettings, *, db: Database, clock: Clock, tasks: Supervisor
) -> AsyncIterator[Terminals]:
    """Raises Misconfigured."""
    terminals = Terminals(_host(settings, ssh, tasks), db, clock)
    try:
        yield terminals
    finally:
        await terminals.close()


def _host(settings: TerminalSettings, ssh: SshSettings, tasks: Supervisor) -> Host | None:
    match settings.terminal_backend:
        case "local":
            return Local(settings.terminal_shell, inherited_environment())
        case "ssh" if ssh.ssh_host:
            from app.terminal.ssh import Ssh  # the library takes 0.2 s and 6 MB, which others need not spend
            from app.terminal.ssh_target import Target

            return Ssh(Target.of(ssh), tasks, shell=settings.terminal_shell or "")
        case _:
            return None
