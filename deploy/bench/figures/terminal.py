"""Terminals: a keystroke there and back in tmux, a flood on a bare PTY, and a reader who stops in the middle of one."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from app.tasks import Supervisor
from deploy.bench import processes
from deploy.bench.lab import Lab
from deploy.bench.machine import Meter, percentile, resident_kib
from deploy.bench.phone import Phone, dial, envelope, pair
from deploy.bench.processes import Broken, Server
from deploy.bench.profile import sampled
from deploy.bench.report import Row, at_least, at_most, compared
from deploy.bench.streams import HEAD
from deploy.bench.terminal import QUIET_SECONDS, READY, keys
from deploy.bench.typist import GIVE_UP_SECONDS, Typist, attach

KEYS = 1000
P50_MS, P99_MS = 2.0, 6.0
FLOOD = "seq 1 2000000"
FLOOD_BYTES = 16_888_896  # with the \r that the terminal adds to each line
FLOOD_MB = 25.0
STOPPED_SECONDS = 8.0
GROWTH_MIB = 8.0
PING_P99_MS = 20.0
PING_SECONDS = 0.005
TYPING = f"echo {READY}; exec cat > /dev/null"
BARE = ("sh", "seq", "cat", "yes", "stty", "env", "printenv")
PLACES = {
    "Splitter.": "decode", "feed (app/terminal": "decode", "_whole (app/terminal": "decode",
    "History.": "history", "add (app/terminal/history": "history",
    "WebSocketProtocol.": "frame and write", "Outbound.": "hand on", "View.": "hand on", "take (app/terminal": "hand on",
    "_say (app/terminal": "encode", "Stream._say": "encode",
    "_readable (app/terminal": "read the PTY", "LocalPty._readable": "read the PTY",
}  # fmt: skip


@asynccontextmanager
async def relay_with_terminals(lab: Lab, *, tmux: bool) -> AsyncIterator[tuple[Server, list[str]]]:
    """On all cores, as its shells are. Its tmux is one of its own, or is not to be found."""
    scratch = lab.scratch()
    environ = {"TALARIA_TERMINAL_BACKEND": "local", "TALARIA_TERMINAL_SHELL": "/bin/sh", "TMUX_TMPDIR": str(scratch)}
    if not tmux:
        environ["PATH"] = str(_bin_without_tmux(scratch))
    async with processes.relay(scratch, core=None, also=environ) as relay:
        yield relay, await pair(relay, 2)


def _bin_without_tmux(scratch: Path) -> Path:
    directory = scratch / "bin"
    directory.mkdir()
    for name in BARE:
        if found := shutil.which(name):
            (directory / name).symlink_to(found)
    return directory


# A keystroke


async def measure_echo(lab: Lab) -> list[Row]:
    if shutil.which("tmux") is None:
        raise Broken("there is no tmux: apt install tmux")
    async with relay_with_terminals(lab, tmux=True) as (relay, tokens):
        typist, attached = await attach(relay, tokens[0], "bench-echo")
        if not attached["tmux_available"]:
            raise Broken("the relay does not use tmux")
        typist.type(f"{TYPING}\r")
        await typist.screen.until(f"{READY}\r\n")
        await asyncio.sleep(QUIET_SECONDS)

        async def ours() -> list[float]:
            return await _type(typist)

        async def bare() -> list[float]:
            return await _bare_echo(lab)

        with Meter([relay.pid]) as meter:
            runs = await lab.in_turn(bare=bare, ours=ours)
        await typist.kill()
    rows = []
    for name, share, aim in (("p50", 0.5, P50_MS), ("p99", 0.99, P99_MS)):
        sides = {side: [percentile(taken, share) for taken in runs[side]] for side in runs}
        rows.append(
            compared(
                f"terminal: echo of a key in tmux, {name}", "ms", sides["ours"], sides["bare"], "bare tmux",
                aim=at_most(aim), others=meter.usage.others,
            )
        )  # fmt: skip
    return rows


async def _type(typist: Typist) -> list[float]:
    """Milliseconds from each key to the output that shows it."""
    taken = []
    for key in keys(KEYS):
        typist.screen.text = ""
        started = time.perf_counter()
        typist.type(key)
        if key == "\r":
            await asyncio.sleep(0.05)
            continue
        async with asyncio.timeout(GIVE_UP_SECONDS):
            while key not in typist.screen.text:
                await typist.screen.next()
        taken.append((time.perf_counter() - started) * 1e3)
    return taken


async def _bare_echo(lab: Lab) -> list[float]:
    found = await _floor("echo", str(KEYS), f'tmux -f /dev/null new-session "{TYPING}"', TMUX_TMPDIR=str(lab.scratch()))
    return list(found["ms"])


async def _floor(*arguments: str, **environ: str) -> dict[str, list[float]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.bench.terminal", *arguments, stdout=subprocess.PIPE, cwd=processes.ROOT,
        env=os.environ | environ, preexec_fn=lambda: os.sched_setaffinity(0, processes.CORES),
    )  # fmt: skip
    said, _ = await process.communicate()
    if process.returncode:
        raise Broken(f"the bare loop failed: {process.returncode}")
    found: dict[str, list[float]] = orjson.loads(said)
    return found


# A flood


async def measure_flood(lab: Lab) -> list[Row]:
    others = 0.0
    async with relay_with_terminals(lab, tmux=False) as (relay, tokens):
        numbers = iter(range(100))

        async def ours() -> float:
            typist, attached = await attach(relay, tokens[0], f"bench-flood-{next(numbers)}")
            if attached["tmux_available"]:
                raise Broken("the relay found a tmux")
            return await _flood(typist)

        async def bare() -> float:
            found = await _floor("flood", FLOOD)
            return _mb_per_second(int(str(found["bytes"])), float(str(found["seconds"])))

        with Meter([relay.pid]) as meter:
            runs = await lab.in_turn(bare=bare, ours=ours)
        others = meter.usage.others
        shares: dict[str, float]
        async with sampled(relay.pid, PLACES, lab.scratch()) as shares:
            await ours()
    note = ", ".join(f"{place} {share:.0%}" for place, share in shares.items())
    return [
        compared(
            f"terminal: {FLOOD} on a bare PTY", "MB/s", runs["ours"], runs["bare"], "bare loop",
            aim=at_least(FLOOD_MB), others=others, note=note,
        )
    ]  # fmt: skip


async def _flood(typist: Typist) -> float:
    """MB/s of output from the first frame of the flood to the last."""
    screen = typist.screen
    typist.type(f"stty -echo; echo {READY}\r")
    await screen.until(f"{READY}\r\n")
    await asyncio.sleep(QUIET_SECONDS)
    before = screen.size
    typist.type(f"{FLOOD}\r")
    await screen.next()
    started = time.perf_counter()
    async with asyncio.timeout(GIVE_UP_SECONDS):
        while screen.size - before < FLOOD_BYTES:
            await screen.next()
    seconds = time.perf_counter() - started
    await typist.kill()
    return _mb_per_second(FLOOD_BYTES, seconds)


def _mb_per_second(size: int, seconds: float) -> float:
    return size / seconds / 1e6


# A reader who stops


async def measure_stopped(lab: Lab) -> list[Row]:
    await lab.quiet()
    async with relay_with_terminals(lab, tmux=False) as (relay, tokens):
        typist, _ = await attach(relay, tokens[0], "bench-stopped")
        delays: list[float] = []
        other = await dial(relay, tokens[1])
        typist.type("yes talaria\r")
        await typist.screen.until("talaria\r\n" * 2)
        before = resident_kib(relay.pid)
        highest = [before]
        typist.phone.socket.transport.pause_reading()
        async with Supervisor() as tasks:
            tasks.start(_weigh(relay, highest), "weigh")
            with Meter([relay.pid]) as meter:
                await _ping(other, delays)
        typist.phone.socket.transport.resume_reading()
        typist.phone.hang_up()
        other.hang_up()
    return [
        Row(
            f"terminal: memory for {STOPPED_SECONDS:.0f} s of a flood that nobody reads", "MiB",
            (max(highest) - before) / 1024, at_most(GROWTH_MIB), others=meter.usage.others,
            note=f"processor {meter.usage.servers:.0f} %",
        ),
        Row(
            "terminal: ping of another phone meanwhile, p99", "ms", percentile(delays, 0.99), at_most(PING_P99_MS),
            others=meter.usage.others, note=f"p50 {statistics.median(delays):.2f} ms",
        ),
    ]  # fmt: skip


async def _weigh(relay: Server, highest: list[int]) -> None:
    while True:
        highest[0] = max(highest[0], resident_kib(relay.pid))
        await asyncio.sleep(0.05)


async def _ping(phone: Phone, delays: list[float]) -> None:
    """One at a time for STOPPED_SECONDS; milliseconds of each."""
    answered = asyncio.Event()
    phone.socket.on_text = lambda text: answered.set() if b'"pong"' in text[:HEAD] else None
    message = envelope("system", "ping", {}, "p")
    end = time.perf_counter() + STOPPED_SECONDS
    while (started := time.perf_counter()) < end:
        answered.clear()
        phone.socket.send(message)
        async with asyncio.timeout(GIVE_UP_SECONDS):
            await answered.wait()
        delays.append((time.perf_counter() - started) * 1e3)
        await asyncio.sleep(PING_SECONDS)
