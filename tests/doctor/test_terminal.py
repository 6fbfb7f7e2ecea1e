"""Whether devices can have shells, as far as it can be seen before one is opened."""

from __future__ import annotations

import pytest

from app.doctor.terminal import look
from app.settings import SshSettings, TerminalSettings


async def _in_tmux() -> bool:
    return True


@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/bin/false"])
async def test_a_shell_that_lets_nobody_in(shell: str) -> None:
    (found,) = await look(TerminalSettings(terminal_shell=shell), SshSettings(), _in_tmux)
    assert (found.state, found.says) == (
        "warn", f"the relay's user has {shell} for a shell: each session ends at once",
    )  # fmt: skip
    assert "TALARIA_TERMINAL_SHELL" in (found.do or "")


async def test_shells_elsewhere_are_not_of_this_user() -> None:
    settings = TerminalSettings(terminal_backend="ssh", terminal_shell="/usr/sbin/nologin")
    (found,) = await look(settings, SshSettings(ssh_host="there"), _in_tmux)
    assert (found.state, found.says) == ("ok", "shells of there, over SSH, in tmux")
