"""Whether devices can have shells, and whether those outlive the relay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.doctor.finding import Finding
from app.errors import RelayError
from app.settings import SshSettings, TerminalSettings


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
    where = f"{ssh.ssh_host}, over SSH" if settings.terminal_backend == "ssh" else "this host"
    if not kept:
        return [Finding(name, "warn", f"there is no tmux on {where}: shells end with the relay", "`apt install tmux`")]
    return [Finding(name, "ok", f"shells of {where}, in tmux")]
