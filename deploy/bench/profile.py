"""Where the time of a server goes, as py-spy samples it from outside. Says nothing where py-spy is not installed."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

RATE = 400  # samples a second
BEGIN_SECONDS = 1.0  # until it samples


@asynccontextmanager
async def sampled(pid: int, places: Mapping[str, str], scratch: Path) -> AsyncIterator[dict[str, float]]:
    """Shares of the busy time, by what `places` calls the innermost `function (file)` that it names.

    Filled when the block ends; "the rest" is what no place names.
    """
    shares: dict[str, float] = {}
    tool = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if tool is None:
        yield shares
        return
    found = scratch / "samples.txt"
    process = await asyncio.create_subprocess_exec(
        *(tool, "record", "--pid", str(pid), "--rate", str(RATE), "--nonblocking", "--nolineno"),
        *("--duration", "unlimited", "--format", "raw", "--output", str(found)),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await asyncio.sleep(BEGIN_SECONDS)
        yield shares
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()
    if found.exists():
        shares.update(_shares(found.read_text(), places))


def _shares(samples: str, places: Mapping[str, str]) -> dict[str, float]:
    counted: Counter[str] = Counter()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = reversed(stack.split(";"))
        place = next((place for frame in frames for start, place in places.items() if frame.startswith(start)), "")
        counted[place or "the rest"] += int(count)
    return {place: count / counted.total() for place, count in counted.most_common()}
