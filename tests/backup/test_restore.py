"""A restore that is killed, and files that are spoilt."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path

import orjson
import pytest

from app.backup import archive, restore
from app.backup.errors import BackupInvalid
from app.db.files import opened
from app.errors import Misconfigured
from app.sessions import keys
from app.sessions.keys import SessionKeys, merged
from tests.relay import running, settings_for

NOW = 1_800_000_000.0


async def backed_up(data_dir: Path) -> bytes:
    """Of a relay that ran on this directory for a moment."""
    async with running(settings_for(data_dir)):
        pass
    packed = io.BytesIO()
    archive.write(data_dir, data_dir / "talaria.db", packed, NOW)
    return packed.getvalue()


def relay_id(data_dir: Path) -> bytes:
    with opened(data_dir / "talaria.db") as db:
        found: bytes = db.execute("SELECT value FROM meta WHERE key = 'relay_id'").fetchone()[0]
        return found


@pytest.mark.parametrize("moved", range(4))
async def test_one_that_is_killed_is_finished_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    old, here = tmp_path / "old", tmp_path / "here"
    packed = await backed_up(old)
    await backed_up(here)
    assert relay_id(old) != relay_id(here)
    moves = 0

    def killed(source: Path, target: Path) -> None:
        nonlocal moves
        if moves == moved:
            raise KeyboardInterrupt
        moves += 1
        source.rename(target)

    monkeypatch.setattr("app.backup.restore.os.replace", killed)
    with archive.unpacked(io.BytesIO(packed), here) as (files, manifest), pytest.raises(KeyboardInterrupt):
        restore.put_back(files, manifest, here, here / "talaria.db", NOW)
    monkeypatch.undo()
    async with running(settings_for(here)):
        pass
    assert relay_id(here) == relay_id(old)
    assert (here / "session-keys.json").read_bytes() == (old / "session-keys.json").read_bytes()
    assert not list(here.glob("*.restoring")), "something was left"
    assert (here / "talaria.db.before-restore").stat().st_mode & 0o777 == 0o600


async def test_each_byte_that_is_damaged_is_noticed(tmp_path: Path) -> None:
    packed = bytearray(await backed_up(tmp_path / "old"))
    for place in range(100, len(packed), len(packed) // 20):
        spoilt = bytes(packed[:place]) + bytes([packed[place] ^ 0x40]) + bytes(packed[place + 1 :])
        with pytest.raises(BackupInvalid), archive.unpacked(io.BytesIO(spoilt), tmp_path):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


async def test_one_of_a_newer_talaria_is_refused(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await backed_up(data_dir)
    with opened(data_dir / "talaria.db") as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    packed = io.BytesIO()
    archive.write(data_dir, data_dir / "talaria.db", packed, NOW)
    packed.seek(0)
    with archive.unpacked(packed, data_dir) as (files, manifest), pytest.raises(Misconfigured, match="newer Talaria"):
        restore.put_back(files, manifest, data_dir, data_dir / "talaria.db", NOW)


async def test_a_database_that_cannot_be_read_is_no_obstacle(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    packed = await backed_up(data_dir)
    was = relay_id(data_dir)
    (data_dir / "talaria.db").write_bytes(b"spoilt" * 1000)
    with archive.unpacked(io.BytesIO(packed), data_dir) as (files, manifest):
        done = restore.put_back(files, manifest, data_dir, data_dir / "talaria.db", NOW)
    assert relay_id(data_dir) == was
    assert done.kept is not None
    assert done.kept.read_bytes().startswith(b"spoilt")


def test_of_two_files_of_keys_all_verify_and_ours_signs(tmp_path: Path) -> None:
    ours, theirs, both = tmp_path / "ours", tmp_path / "theirs", tmp_path / "both"
    for directory in (ours, theirs, both):
        directory.mkdir()
    mine, backed = SessionKeys.load(ours), SessionKeys.load(theirs)
    content = merged((ours / keys.FILE).read_bytes(), (theirs / keys.FILE).read_bytes())
    (both / keys.FILE).write_bytes(content)
    found = SessionKeys.load(both)
    assert found.kid == mine.kid
    assert found.public.keys() == {mine.kid, backed.kid}
    assert merged(b"spoilt", content) == content == merged(content, orjson.dumps({}))


def test_a_backup_that_is_empty_or_no_tar(tmp_path: Path) -> None:
    for content in (b"", b"\x1f\x8b\x08", b"hello" * 1000):
        with pytest.raises(BackupInvalid), archive.unpacked(io.BytesIO(content), tmp_path):
            pass
    with pytest.raises(sqlite3.Error), opened(tmp_path / "no.db"):
        pass
