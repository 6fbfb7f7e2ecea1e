"""A restore that is killed, and files that are spoilt."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import shutil
import signal
import sqlite3
import sys
import tarfile
import zlib
from pathlib import Path

import httpx
import orjson
import pytest

from app.backup import archive, drafts, restore
from app.backup.errors import BackupFailed, BackupInvalid
from app.db.files import opened
from app.errors import Misconfigured
from app.sessions import keys
from app.sessions.changes import Change
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
    here = here.rename(tmp_path / "as a container has it")
    async with running(settings_for(here)):
        pass
    assert relay_id(here) == relay_id(old)
    assert (here / "session-keys.json").read_bytes() == (old / "session-keys.json").read_bytes()
    assert not list(here.glob("*.restoring")), "something was left"
    assert (here / "talaria.db.before-restore").stat().st_mode & 0o777 == 0o600


def inflated(packed: bytes) -> bytes | None:
    """None: it is no longer that format."""
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        return None


async def test_each_byte_that_is_damaged_is_noticed(tmp_path: Path) -> None:
    packed = await backed_up(tmp_path / "old")
    for place in range(10, len(packed) - 4, len(packed) // 100):
        spoilt = packed[:place] + bytes([packed[place] ^ 0x40]) + packed[place + 1 :]
        if inflated(spoilt) == inflated(packed):
            continue  # a bit that only fills up the last byte before the sum
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
    with pytest.raises(Misconfigured, match="newer Talaria"), archive.unpacked(packed, data_dir):
        pytest.fail("a relay would be stopped for it")


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


async def test_what_was_cut_and_rotated_since_stays_as_it_is_now(tmp_path: Path) -> None:
    data_dir, packed = tmp_path / "data", io.BytesIO()
    async with running(settings_for(data_dir)) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        phone = await relay.connect()
        old = phone.auth["refresh_token"]
        archive.write(data_dir, data_dir / "talaria.db", packed, NOW)
        renewed = (await http.post("/session/renew", json={"refresh_token": old})).json()
        (session,) = await relay.relay.sessions.list()
        await relay.relay.sessions.alter(session.prefix, Change(grants={"terminal": 1}))
        seen = {"Authorization": f"Bearer {renewed['session_token']}"}
        assert (await http.get("/session", headers=seen)).status_code == 200
        again = (await http.post("/session/renew", json={"refresh_token": renewed["refresh_token"]})).json()
        cut = (await http.get("/session", headers=seen)).json()["grants"]["terminal"]
    packed.seek(0)
    with archive.unpacked(packed, data_dir) as (files, manifest):
        restore.put_back(files, manifest, data_dir, data_dir / "talaria.db", NOW)
    async with running(settings_for(data_dir)) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        seen = {"Authorization": f"Bearer {again['session_token']}"}
        assert (await http.get("/session", headers=seen)).json()["grants"]["terminal"] == cut
        newest = await http.post("/session/renew", json={"refresh_token": again["refresh_token"]})
        assert newest.status_code == 200
        reused = await http.post("/session/renew", json={"refresh_token": old})
        assert reused.status_code == 401, "a refresh token that was used up is good again"


def test_of_two_files_of_keys_all_verify_and_ours_signs(tmp_path: Path) -> None:
    ours, theirs, both = tmp_path / "ours", tmp_path / "theirs", tmp_path / "both"
    for directory in (ours, theirs, both):
        directory.mkdir()
    mine, backed = SessionKeys.load(ours), SessionKeys.load(theirs)
    content = merged((ours / keys.FILE).read_bytes(), (theirs / keys.FILE).read_bytes())
    (both / keys.FILE).write_bytes(content)
    found = SessionKeys.load(both)
    assert found.signing.kid == mine.signing.kid
    assert found.public.keys() == {mine.signing.kid, backed.signing.kid}
    assert merged(b"spoilt", content) == content == merged(content, orjson.dumps({}))


def test_a_backup_that_is_empty_or_no_tar(tmp_path: Path) -> None:
    for content in (b"", b"\x1f\x8b\x08", b"hello" * 1000):
        with pytest.raises(BackupInvalid), archive.unpacked(io.BytesIO(content), tmp_path):
            pass
    with pytest.raises(sqlite3.Error), opened(tmp_path / "no.db"):
        pass


def test_two_that_write_to_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "talaria.backup"
    with pytest.raises(BackupFailed, match="there already"), drafts.written(path) as slower:  # noqa: PT012
        slower.write(b"1" * 100_000)
        with drafts.written(path) as faster:
            faster.write(b"2" * 10)
    assert path.read_bytes() == b"2" * 10
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path], "a draft was left"


KILLED = """
import os, signal, sys
from pathlib import Path
from app.backup import archive, drafts, restore

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

here = Path(sys.argv[1])
{}
"""
IN_A_BACKUP = """
archive._pack = lambda scratch, manifest, to: (to.write(b"half"), to.flush(), killed())
with drafts.written(here / "out" / "one.backup") as to:
    archive.write(here / "data", here / "data" / "talaria.db", to, 1.0)
"""
IN_A_RESTORE = """
restore._store_list = killed
with open(here / "packed", "rb") as packed, archive.unpacked(packed, here / "data") as (files, manifest):
    restore.put_back(files, manifest, here / "data", here / "data" / "talaria.db", 1.0)
"""


async def test_what_a_killed_run_leaves_is_gone_after_the_next_one_and_the_next_start(tmp_path: Path) -> None:
    """It holds keys."""
    data, out = tmp_path / "data", tmp_path / "out"
    out.mkdir()
    (tmp_path / "packed").write_bytes(await backed_up(data))
    for doing in (IN_A_BACKUP, IN_A_RESTORE):
        done = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED.format(doing), tmp_path)
        assert await done.wait() == -signal.SIGKILL
    left = {path.name for path in data.iterdir() if path.name.startswith(".backup-") or path.suffix == ".restoring"}
    assert len(list(out.iterdir())) == 1
    assert "session-keys.json.restoring" in left
    with drafts.scratch(data) as in_use, drafts.written(out / "two.backup") as file:
        (in_use / "talaria.db").touch()
        file.write(b"whole")
        file.flush()
        async with running(settings_for(data)):
            assert [path.name for path in data.glob(".backup-*")] == [in_use.name]
            assert not list(data.glob("*.restoring"))
        with drafts.written(out / "three.backup"):
            pass
    assert not list(data.glob(".backup-*"))
    assert sorted(path.name for path in out.iterdir()) == ["three.backup", "two.backup"]


async def test_a_restore_after_one_that_was_killed_in_its_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first was to move is not moved over what the second has put there."""
    first, second, here = tmp_path / "first", tmp_path / "second", tmp_path / "here"
    packed = [await backed_up(path) for path in (first, second)]
    await backed_up(here)
    with monkeypatch.context() as patch, archive.unpacked(io.BytesIO(packed[0]), here) as (files, manifest):
        patch.setattr("app.backup.restore._move", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            restore.put_back(files, manifest, here, here / "talaria.db", NOW)
    (second / "vapid.key").unlink()
    packed_again = io.BytesIO()
    archive.write(second, second / "talaria.db", packed_again, NOW)
    packed_again.seek(0)
    with archive.unpacked(packed_again, here) as (files, manifest):
        restore.put_back(files, manifest, here, here / "talaria.db", NOW)
    assert relay_id(here) == relay_id(second)
    assert (here / "vapid.key").read_bytes() == (first / "vapid.key").read_bytes()
    assert not list(here.glob("*.restoring"))


def packed_with(said: object, *members: tuple[str, int]) -> io.BytesIO:
    """A manifest that says so, and members of zeros."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w|gz") as tar:
        for name, content in (("manifest.json", orjson.dumps(said)), *((name, bytes(size)) for name, size in members)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    packed.seek(0)
    return packed


@pytest.mark.parametrize("made_at", [1e300, -1, 253_402_300_799])
def test_a_time_that_has_no_date(tmp_path: Path, made_at: float) -> None:
    said = {"talaria": 1, "version": "0.1.0", "made_at": made_at, "files": {"talaria.db": ""}}
    with pytest.raises(BackupInvalid), archive.unpacked(packed_with(said), tmp_path):
        pass


async def test_a_database_that_is_not_what_its_schema_says(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await backed_up(data_dir)
    with opened(data_dir / "talaria.db") as db:
        db.execute("UPDATE alembic_version SET version_num = '0005'")
    packed = io.BytesIO()
    archive.write(data_dir, data_dir / "talaria.db", packed, NOW)
    packed.seek(0)
    with pytest.raises(BackupInvalid), archive.unpacked(packed, tmp_path):
        pass


def test_what_has_no_room_is_refused_before_it_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("app.backup.archive.shutil.disk_usage", lambda _: usage._replace(free=archive.KEEP_FREE))
    monkeypatch.setattr("app.backup.archive.shutil.copyfileobj", lambda *_: pytest.fail("it was written"))
    said = {"talaria": 1, "version": "0.1.0", "made_at": NOW, "files": {"talaria.db": ""}}
    packed = packed_with(said, ("talaria.db", 1 << 20))
    with pytest.raises(BackupFailed, match="no room"), archive.unpacked(packed, tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root restores for another user")
async def test_root_leaves_the_files_to_the_user_of_the_relay(tmp_path: Path) -> None:
    """In the image the data directory is root's, open to all; what lies in it is the relay's."""
    data_dir = tmp_path / "data"
    packed = await backed_up(data_dir)
    data_dir.chmod(0o1777)
    for path in data_dir.iterdir():
        os.chown(path, 4711, 4712)
    with archive.unpacked(io.BytesIO(packed), data_dir) as (files, manifest):
        restore.put_back(files, manifest, data_dir, data_dir / "talaria.db", NOW)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in data_dir.iterdir()} == {(4711, 4712)}
