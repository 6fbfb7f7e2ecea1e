"""Whether devices can have shells, and whether those outlive the relay."""

from __future__ import annotations

import os
import pwd
from collections.abc import Awaitable, Callable
from pathlib import Path

from app.doctor.finding import Finding
from app.errors import RelayError
from app.settings import SshSettings, TerminalSettings

_NONE = ("nologin", "false")  # shells that let nobody in, as users of services have


async def look(
    settings: TerminalSettings, ssh: SshSettings, keeps: Callable[[], Awaitable[bool | None]]
) -> list[Finding]:
    """`keeps`: as the terminals themselves say."""
    name = "terminal"
    try:
        kept = await keeps()
    except RelayError as exc:
        return [Finding(name, "fail", exc.message, "deploy/guide.md, “A terminal from the container”", exc.layer)]
    if kept is None:
        return [Finding(name, "skip", "it is switched off")]
    if settings.terminal_backend == "local" and Path(shell := settings.terminal_shell or _login_shell()).name in _NONE:
        do = "set TALARIA_TERMINAL_SHELL to a shell (/bin/bash), or TALARIA_TERMINAL_BACKEND to ssh or off"
        return [Finding(name, "warn", f"the relay's user has {shell} for a shell: each session ends at once", do)]
    where = f"{ssh.ssh_host}, over SSH" if settings.terminal_backend == "ssh" else "this host"
    if not kept:
        return [Finding(name, "warn", f"there is no tmux on {where}: shells end with the relay", "`apt install tmux`")]
    return [Finding(name, "ok", f"shells of {where}, in tmux")]


def _login_shell() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:
        return ""
