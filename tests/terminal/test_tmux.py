"""A tmux that does not answer."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from app.terminal import tmux
from app.terminal.local import Local
from tests.relay import RunningRelay
from tests.terminal.seat import seat


async def test_who_waits_behind_a_tmux_that_hangs_shares_its_failure(
    with_tmux: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seat(with_tmux, "before")
    asks = await asyncio.create_subprocess_exec(
        "tmux", "display-message", "-p", "#{pid}", stdout=asyncio.subprocess.PIPE
    )
    server = int((await asks.communicate())[0])
    phones = [await with_tmux.connect() for _ in range(5)]
    asked = []

    async def run(local: Local, argv: list[str], *, timeout_s: float) -> tuple[int, bytes]:
        asked.append(argv)
        return await unchanged(local, argv, timeout_s=timeout_s)

    unchanged = Local.run
    monkeypatch.setattr(Local, "run", run)
    monkeypatch.setattr(tmux, "ANSWER_S", 1.0)
    monkeypatch.setattr(tmux, "PAUSE_S", 3600.0)
    os.kill(server, signal.SIGSTOP)
    try:
        answers = await asyncio.gather(
            *(phone.ask("terminal", "terminal.attach", session_name=f"n{n}") for n, phone in enumerate(phones))
        )
        assert [answer.payload["code"] for answer in answers] == ["terminal_unavailable"] * 5
        assert len(asked) == 1
    finally:
        os.kill(server, signal.SIGCONT)
    monkeypatch.setattr(tmux, "ANSWER_S", 10.0)
    monkeypatch.setattr(tmux, "PAUSE_S", 0.0)
    await (await seat(with_tmux, "after")).run("true")
