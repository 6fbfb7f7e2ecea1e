"""The spool keeps what it said it kept, in order, whatever happens to its process."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.hermes_plugin import spool as module
from deploy.hermes_plugin.spool import Spool, SpoolFull, SpoolRenewed

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from pathlib import Path
from deploy.hermes_plugin.spool import Spool
spool = Spool(Path(sys.argv[1]))
spool.open()
first = spool.pending(0, 1_000_000)
i = len(first)
while True:
    if i % 5 == 4:
        spool.begin_stream(f"s{i}", "home", None)
    n = spool.append({"type": "message", "chat_id": "home", "local_id": f"l{i}", "text": f"text {i}"})
    if i % 3 == 2:
        spool.take(f"in{i}")
    print(n, flush=True)
    i += 1
"""


def message(text: str, local_id: str = "a") -> dict[str, str]:
    return {"type": "message", "chat_id": "home", "local_id": local_id, "text": text}


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "talaria")
    spool.open()
    yield spool
    spool.close()


def test_what_was_confirmed_survives_kill_nine(tmp_path: Path) -> None:
    confirmed = 0
    for after in (3, 40, 11):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "talaria")], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(after):
            confirmed = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        confirmed = max([confirmed, *map(int, writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()
        spool = Spool(tmp_path / "talaria")
        spool.open()
        kept = spool.pending(0, 1_000_000)
        spool.close()
        assert [item.n for item in kept] == list(range(1, len(kept) + 1))
        assert [item.frame["text"] for item in kept] == [f"text {i}" for i in range(len(kept))]
        assert confirmed <= len(kept) <= confirmed + 1  # one may be on disk and not yet said


def test_a_number_is_never_given_twice(spool: Spool, tmp_path: Path) -> None:
    assert [spool.append(message(f"m{i}")) for i in range(3)] == [1, 2, 3]
    for n in (1, 2, 3):
        spool.settle(n)
    spool.close()
    spool.open()
    assert spool.append(message("next")) == 4


def test_a_full_spool_refuses_the_new_and_keeps_the_old(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FRAMES", 2)
    spool.append(message("one"))
    spool.append(message("two"))
    with pytest.raises(SpoolFull, match="2 messages wait"):
        spool.append(message("three"))
    assert spool.append({"type": "done", "inbound_id": "i", "outcome": "success"}) == 3
    assert [item.frame.get("text") for item in spool.pending(0)] == ["one", "two", None]


def test_the_bytes_of_a_spool_are_bounded_too(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    spool.append(message("x" * 800))
    with pytest.raises(SpoolFull):
        spool.append(message("x" * 200))


def test_what_the_relay_has_is_forgotten(spool: Spool) -> None:
    for i in range(5):
        spool.append(message(f"m{i}"))
    spool.settle_through(3)
    assert [item.n for item in spool.pending(0)] == [4, 5]


def test_a_spool_older_than_the_relay_is_renamed_and_numbered_anew(spool: Spool) -> None:
    before = spool.identity()
    for i in range(3):
        spool.append(message(f"m{i}"))
    spool.settle(1)
    with pytest.raises(SpoolRenewed):
        spool.settle_through(9)
    assert spool.identity() != before
    assert [(item.n, item.frame["text"]) for item in spool.pending(0)] == [(1, "m1"), (2, "m2")]
    assert spool.append(message("m3")) == 3


def test_a_restart_closes_what_was_open(spool: Spool) -> None:
    spool.begin_stream("half", "home", None)
    spool.begin_stream("whole", "home", None)
    spool.append(message("whole", "whole"))
    spool.append({"type": "ask", "ask_id": "q1", "chat_id": "home"})
    assert spool.recover() == 2
    assert spool.recover() == 0
    closing = [item.frame for item in spool.pending(2)]
    assert closing == [
        {"type": "interrupted", "chat_id": "home", "local_id": "half"}, {"type": "ask.closed", "ask_id": "q1"},
    ]  # fmt: skip


def test_only_the_last_inbound_ids_are_remembered(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 3)
    for i in range(10):
        spool.take(f"i{i}")
    assert [i for i in range(10) if spool.was_taken(f"i{i}")] == [7, 8, 9]


def test_a_damaged_file_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "talaria"
    folder.mkdir()
    (folder / "spool.db").write_bytes(b"no database" * 1000)
    spool = Spool(folder)
    spool.open()
    assert spool.append(message("on")) == 1
    spool.close()
    assert "damaged" in caplog.text
    assert len(list(folder.glob("spool.broken-*"))) == 1


def test_others_on_the_host_cannot_read_it(spool: Spool, tmp_path: Path) -> None:
    assert (tmp_path / "talaria").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "talaria" / "spool.db").stat().st_mode & 0o777 == 0o600


def test_half_a_character_does_not_stop_the_spool(spool: Spool) -> None:
    spool.append(message("a \ud83d b"))
    assert json.loads(module.dumps(spool.pending(0)[0].frame))["text"] == "a ? b"


def test_commits_reach_the_disk(spool: Spool) -> None:
    assert spool._open_db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert spool._open_db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert isinstance(spool._open_db, sqlite3.Connection)
