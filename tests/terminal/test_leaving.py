"""What is left when devices leave, stop reading, lose their rights, or the relay ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from app.clock import ManualClock
from app.gateway.limits import Limits
from tests.phone import Phone
from tests.relay import RunningRelay, running, settings_for
from tests.terminal.conftest import SHELL
from tests.terminal.seat import seat


def children() -> int:
    """Processes that this one has started and that are not gone, dead ones that nobody waited for included."""
    own = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            own += int(stat.read_text().rsplit(")", 1)[1].split()[1]) == os.getpid()
        except OSError:
            continue
    return own


def open_files() -> int:
    """Without those of the database, whose pool opens one more connection when it is busy."""
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            found += "talaria.db" not in file.readlink().name
    return found


async def _level(begun: tuple[int, int]) -> None:
    """Until no more is open than at the beginning."""
    async with asyncio.timeout(15):
        while open_files() > begun[0] or children() > begun[1]:  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.02)


async def test_a_thousand_attaches_leave_nothing(relay: RunningRelay) -> None:
    stays = await seat(relay)
    await stays.phone.ask("terminal", "terminal.list")
    begun = open_files(), children()
    for _ in range(20):
        phone = await relay.connect()
        for _ in range(50):
            answer = await phone.ask("terminal", "terminal.attach", session_name="work")
            assert answer.type == "terminal.attached", answer
        await phone.hang_up()
    await _level(begun)
    assert "yes-2" in await stays.run("echo yes-$((1+1))")


async def test_a_thousand_shells_that_end_leave_nothing(bare: RunningRelay) -> None:
    phone = await bare.connect()
    begun = open_files(), children()
    for _ in range(100):
        name = (await phone.ask("terminal", "terminal.attach")).payload["session_name"]
        assert (await phone.ask("terminal", "terminal.kill", session_name=name)).type == "terminal.detached"
    await _level(begun)


async def test_who_stops_reading_is_cut_and_holds_nobody_up(
    home: Path, no_tmux: None, tmp_path: Path
) -> None:  # fmt: skip
    limits = Limits(stall_seconds=1.0)
    async with running(settings_for(tmp_path, TERMINAL_SHELL=SHELL), limits=limits) as relay:
        reads = await seat(relay)
        stopped = await seat(relay)
        elsewhere = await relay.connect()
        stopped.phone.socket.transport.pause_reading()
        before = _resident()
        await reads.type("yes 0123456789\r")
        waits, deadline = [], time.monotonic() + 4.0
        reading = asyncio.get_running_loop().create_task(_read_on(reads.phone))
        while time.monotonic() < deadline:
            begun = time.perf_counter()
            await elsewhere.ping()
            waits.append(time.perf_counter() - begun)
            await asyncio.sleep(0.01)
        grown = _resident() - before
        reading.cancel()
        assert sorted(waits)[len(waits) * 9 // 10] < 0.1
        assert grown < 24 * 1024 * 1024  # with what this test's own clients hold
        assert len(relay.relay.hub) == 2  # it is cut
        await reads.type("\x03")


async def _read_on(phone: Phone) -> None:
    while True:
        await phone.socket.recv()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_reader_that_pauses_misses_nothing(bare: RunningRelay) -> None:
    it = await seat(bare)
    it.phone.socket.transport.pause_reading()
    await it.type("seq 1 400000; echo do''ne\r")
    await asyncio.sleep(0.5)  # the flood fills what is between
    it.phone.socket.transport.resume_reading()
    said = await it.until("done")
    numbers = [int(line) for line in said.replace("\r", "").split("\n") if line.isdigit()]
    assert numbers == list(range(1, 400_001))


async def test_output_ends_with_the_session(relay: RunningRelay) -> None:
    it = await seat(relay)
    await it.type("while :; do echo tick; sleep 0.01; done\r")
    await it.until("tick")
    (session,) = await relay.relay.sessions.list()
    await relay.relay.sessions.revoke(session.prefix, actor="operator")
    code, _ = await it.phone.closed()
    assert code == 4401
    async with asyncio.timeout(5):
        while list(relay.relay.terminals.attached):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_output_ends_with_the_grant(home: Path, no_tmux: None, tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path, TERMINAL_SHELL=SHELL), clock=clock) as relay:
        offer = await relay.relay.pairing.mint(grants={"terminal": 60})
        it = await seat(relay, pairing_code=offer.code)
        other = await seat(relay)
        clock.advance(61)
        await other.type("echo se''cret\r")
        await other.until("secret")
        assert (await it.detached())["reason"] == "grant expired"
        await it.phone.ping()
        assert "secret" not in it.text
        refused = await it.phone.ask("terminal", "terminal.attach", session_name="work")
        assert (refused.type, refused.payload["code"]) == ("error", "grant_missing")


async def test_a_relay_that_ends_says_so(relay: RunningRelay) -> None:
    it = await seat(relay)
    await relay.relay.drain()
    assert (await it.detached())["reason"] == "server shutdown"


async def test_shells_in_tmux_outlive_the_relay(home: Path, tmux_server: Path, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, TERMINAL_SHELL=SHELL)
    async with running(settings) as relay:
        it = await seat(relay)
        await it.run("marked=still-here")
        token, pid = it.phone.token, it.attached["pid"]
    async with running(settings) as relay:
        it = await seat(relay, session_token=token)
        assert (it.attached["reattach"], it.attached["pid"]) == (True, pid)
        assert "still-here" in await it.run("echo $marked")


async def test_shells_of_the_relay_end_with_it(home: Path, no_tmux: None, tmp_path: Path) -> None:
    async with running(settings_for(tmp_path, TERMINAL_SHELL=SHELL)) as relay:
        it = await seat(relay)
        pid = it.attached["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_person_at_the_host_sees_the_same_session(with_tmux: RunningRelay) -> None:
    it = await seat(with_tmux)
    keys = ["tmux", "send-keys", "-t", "=hermes-work:", "echo by-ha''nd", "Enter"]
    await asyncio.to_thread(subprocess.run, keys, check=True)
    await it.until("by-hand")


async def test_a_program_with_the_whole_screen_draws_again(bare: RunningRelay, home: Path) -> None:
    # It looks at the size outside its trap: bash forgets a signal that comes while the trap of the one before runs.
    draws = "while :; do sleep 0.05; [ -z $changed ] || { changed=; echo drawn-$(stty size); }; done"
    script = f"printf '\\033[?1049h'; trap 'changed=1' WINCH; echo full; {draws}"
    (home / "program").write_text(script)
    it = await seat(bare)
    await it.type("cd; bash program\r")
    await it.until("full")
    again = await seat(bare)
    shown = await again.until("drawn-24 80")
    assert "\x1b[?1049h" in shown
    assert "full" not in shown


async def test_what_asks_a_terminal_is_not_asked_again(bare: RunningRelay) -> None:
    it = await seat(bare)
    live = await it.run("printf 'before\\033[6n\\033]11;?\\007\\033[cafter'")
    shown = await (await seat(bare)).until("]11;?\\007\\033[cafter'")
    shown += await (await seat(bare)).until("before" + "\x1b\\" * 3 + "after")
    for question in ("\x1b[6n", "\x1b]11;?", "\x1b[c"):
        assert question in live
        assert question not in shown
