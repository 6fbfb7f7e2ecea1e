"""Killing the relay at any instant loses, doubles and reorders nothing. Run with -s to see the counts."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from app.delivery.drafts import Draft
from app.delivery.messages import OPERATOR
from app.errors import StorageFull
from tests.crash.relay_process import RelayProcess
from tests.crash.trial import Counts, trial
from tests.relay import running, settings_for

SECONDS = float(os.environ.get("CRASH_SECONDS", "60"))


async def kill_every_second(relay: RelayProcess, enough: Callable[[], bool], seconds: float = SECONDS) -> None:
    """For so long, and until enough was sent: a busy machine needs longer to start a relay than to kill one."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    async with asyncio.timeout(seconds * 6 + 60):
        while loop.time() < ends or not enough():
            await asyncio.sleep(1)  # the trial itself, not a wait for something to happen
            await relay.kill()
            await relay.start()


def show(counts: Counts, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n  {counts}")


async def test_kill_9_every_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    most = int(20_000 * SECONDS / 60)
    counts = await trial(tmp_path / "data", lambda relay, sent: kill_every_second(relay, lambda: sent() >= most))
    show(counts, capsys)
    assert counts.faults == 0
    assert counts.kills >= SECONDS / 10
    assert counts.accepted >= most


async def test_kill_9_in_a_storm_of_supersessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each device opens four sockets of one instance at once, again and again."""

    def storm(relay: RelayProcess, sent: Callable[[], int]) -> Awaitable[None]:
        return kill_every_second(relay, lambda: sent() >= 1000, SECONDS / 3)

    counts = await trial(tmp_path / "data", storm, sockets=4)
    show(counts, capsys)
    assert counts.faults == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(filler: Path, leave: int = 0) -> None:
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            file.truncate(file.tell() - leave)


async def test_a_start_on_a_full_disk_gives_what_is_stored(small_disk: Path) -> None:
    """Also when a push had failed before, which a start would try again at once."""
    settings = settings_for(small_disk / "data")
    failed = text("UPDATE mailboxes SET tries = 1, wake_at = wake_at + 3600")
    async with running(settings) as relay:
        phone = await relay.connect()
        await phone.hang_up()
        await relay.relay.messages.send(Draft("hello"), sender=OPERATOR)
        await relay.relay.db.write(lambda tx: tx.execute(failed).close())
    fill(small_disk / "filler", leave=36 * 1024)  # the database's index of its log has room, the log has none
    async with running(settings) as relay:
        with pytest.raises(StorageFull):
            await relay.relay.messages.send(Draft("more"), sender=OPERATOR)
        back = await relay.connect(session_token=phone.token)
        assert (await back.until("message")).payload["text"] == "hello"


async def test_a_full_disk_for_a_while(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Senders are refused by name and try again; what was accepted before arrives meanwhile; kills go on."""
    filler = small_disk / "filler"

    async def fill_and_free(relay: RelayProcess, sent: Callable[[], int]) -> None:
        await kill_every_second(relay, lambda: sent() >= 300, 3)
        for _ in range(3):
            fill(filler)
            await asyncio.sleep(2)
            filler.unlink()
            await asyncio.sleep(1)
            await relay.kill()
            await relay.start()

    counts = await trial(small_disk / "data", fill_and_free)
    show(counts, capsys)
    assert counts.faults == 0
    assert counts.refused.get("storage_full", 0) > 0
