"""Paths of the host: what leads out of the roots, or to a secret inside, is refused however it is written."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.errors import Misconfigured
from app.media.errors import PathDenied, PathMissing
from app.media.roots import Roots


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """root/ is served, data/ is the relay's own, outside/ belongs to nobody here."""
    for directory in ("root/sub", "root/.ssh", "root/Pairing", "outside/sub", "data/media", "root/closed"):
        (tmp_path / directory).mkdir(parents=True)
    for file in (
        "root/cap.png", "root/sub/deep.txt", "root/.env", "root/AUTH.json", "root/auth_v2.json", "root/state.db-wal",
        "root/Config.YAML", "root/x.KEY", "root/.ssh/known_hosts", "root/Pairing/x.json", "root/ok env.txt",
        "outside/secret.txt", "outside/sub/deep.txt", "data/talaria.db", "data/media/x", "root/ｃonfig.yaml",
    ):  # fmt: skip
        (tmp_path / file).write_bytes(file.encode())
    (tmp_path / "root/link.png").symlink_to(tmp_path / "outside/secret.txt")
    (tmp_path / "root/inside.png").symlink_to(tmp_path / "root/cap.png")
    (tmp_path / "root/away").symlink_to(tmp_path / "outside")
    (tmp_path / "root/data").symlink_to(tmp_path / "data")
    (tmp_path / "root/nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "root/loop").symlink_to(tmp_path / "root/loop")
    os.link(tmp_path / "outside/secret.txt", tmp_path / "root/hard.txt")
    os.mkfifo(tmp_path / "root/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "root/socket"))
    return tmp_path


@pytest.fixture
def roots(house: Path) -> Roots:
    return Roots([str(house / "root")], house / "data")


def content(roots: Roots, path: str) -> bytes:
    file = roots.open(path)
    try:
        return file.read(0, file.size)
    finally:
        file.close()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("{}/root/cap.png", b"root/cap.png"),
        ("{}/root/sub/deep.txt", b"root/sub/deep.txt"),
        ("{}//root/./sub//deep.txt", b"root/sub/deep.txt"),
        ("{}/root/ok env.txt", b"root/ok env.txt"),
    ],
)
def test_what_lies_under_a_root_is_opened(roots: Roots, house: Path, path: str, found: bytes) -> None:
    assert content(roots, path.format(house)) == found


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("root/cap.png", "must be absolute"),
        ("~/root/cap.png", "must be absolute"),
        ("", "must be absolute"),
        ("{}/outside/secret.txt", "not under an allowed root"),
        ("{}/outside/missing.txt", "not under an allowed root"),
        ("{}/root", "not under an allowed root"),
        ("{}/root/", "not under an allowed root"),
        ("{}/rootless/x.png", "not under an allowed root"),
        ("{}/ROOT/cap.png", "not under an allowed root"),
        ("{}/data/talaria.db", "not under an allowed root"),
        ("/usr/bin/env", "not under an allowed root"),
        ("/etc/passwd", "protected"),
        ("/ETC/passwd", "protected"),
        ("//etc//passwd", "protected"),
        ("/proc/self/environ", "protected"),
        ("/proc/self/root{}/root/cap.png", "protected"),
        ("/dev/null", "protected"),
        ("{}/outside/.ssh/id_rsa", "protected"),
        ("{}/root/../outside/secret.txt", "protected"),
        ("{}/root/sub/../cap.png", "protected"),
        ("{}/root/sub/../../data/talaria.db", "protected"),
        ("{}/root/.env", "protected"),
        ("{}/root/.ENV.local", "protected"),
        ("{}/root/AUTH.json", "protected"),
        ("{}/root/auth_v2.json", "protected"),
        ("{}/root/Config.YAML", "protected"),
        ("{}/root/ｃonfig.yaml", "protected"),
        ("{}/root/state.db-wal", "protected"),
        ("{}/root/x.KEY", "protected"),
        ("{}/root/missing.pem", "protected"),
        ("{}/root/.ssh/known_hosts", "protected"),
        ("{}/root/.SSH/known_hosts", "protected"),
        ("{}/root/Pairing/x.json", "protected"),
        ("{}/root/mcp-tokens/github.json", "protected"),
        ("{}/root/hermes-relay-sessions.json", "protected"),
        # what Hermes 0.19 and editors leave of them
        ("{}/root/config.yaml.bak.20260101_120000", "protected"),
        ("{}/root/config.yaml.corrupt.20260101.bak", "protected"),
        ("{}/root/.config.yaml.swp", "protected"),
        ("{}/root/auth.json.corrupt", "protected"),
        ("{}/root/auth.json~", "protected"),
        ("{}/root/.env_x1y2z3.tmp", "protected"),
        ("{}/root/.env~", "protected"),
        ("{}/root/gateway.json", "protected"),
        ("{}/root/honcho.json", "protected"),
        ("{}/root/state-snapshots/20260101/jobs.json", "protected"),
        ("{}/root/hermes-backup-20260101.zip", "protected"),
        ("{}/root/whatsapp/session/creds.json", "protected"),
        ("{}/root/link.png", "leads through a link"),
        ("{}/root/inside.png", "leads through a link"),
        ("{}/root/nowhere", "leads through a link"),
        ("{}/root/loop", "leads through a link"),
        ("{}/root/away/secret.txt", "leads through a link"),
        ("{}/root/away/sub/deep.txt", "leads through a link"),
        ("{}/root/data/talaria.db", "leads through a link"),
        ("{}/root/loop/x", "leads through a link"),
        ("{}/root/sub", "not a regular file"),
        ("{}/root/pipe", "not a regular file"),
        ("{}/root/socket", "not a regular file"),
        ("{}/root/hard.txt", "hard link"),
    ],
)
def test_what_leads_elsewhere_is_refused(roots: Roots, house: Path, path: str, words: str) -> None:
    with pytest.raises(PathDenied, match=words):
        roots.open(path.format(house))


@pytest.mark.parametrize(
    "path",
    [
        "{}/root/none.png", "{}/root/none/none.png", "{}/root/cap.png/x", "{}/root/a\0b", "{}/root/\ud800",
        "{}/root/" + "x" * 300, "{}/root/" + "x/" * 3000,
    ],
)  # fmt: skip
def test_what_is_not_there_is_missing(roots: Roots, house: Path, path: str) -> None:
    with pytest.raises(PathMissing):
        roots.open(path.format(house))


def test_nothing_is_served_where_no_root_is_named(house: Path) -> None:
    with pytest.raises(PathDenied):
        Roots([], house / "data").open(str(house / "root/cap.png"))


def test_a_root_that_holds_the_data_directory_does_not_give_it(house: Path) -> None:
    roots = Roots([str(house)], house / "data")
    assert content(roots, str(house / "outside/sub/deep.txt")) == b"outside/sub/deep.txt"
    for path in ("data/talaria.db", "data/media/x"):
        with pytest.raises(PathDenied, match="protected"):
            roots.open(str(house / path))
    (house / "data").rename(house / "moved")  # by whatever name
    (house / "data").symlink_to(house / "moved")
    roots = Roots([str(house)], house / "data")
    with pytest.raises(PathDenied, match="protected"):
        roots.open(str(house / "moved/talaria.db"))


def test_a_root_may_be_a_link_itself_and_is_what_it_was_at_the_start(house: Path) -> None:
    (house / "alias").symlink_to(house / "root")
    roots = Roots([str(house / "alias")], house / "data")
    assert content(roots, str(house / "alias/cap.png")) == b"root/cap.png"
    assert content(roots, str(house / "root/cap.png")) == b"root/cap.png"
    (house / "alias").unlink()
    (house / "alias").symlink_to(house / "outside")
    with pytest.raises(PathMissing):
        roots.open(str(house / "alias/secret.txt"))
    (house / "root").rename(house / "old")
    (house / "root").symlink_to(house / "outside")
    with pytest.raises(PathDenied, match="leads through a link"):
        roots.open(str(house / "alias/secret.txt"))


@pytest.mark.parametrize(
    "root", ["/", "//", "/etc", "/proc/self", "/dev/shm", "{}/data", "{}/data/media", "{}/root/.ssh"]
)
def test_a_directory_that_may_hold_secrets_cannot_be_a_root(house: Path, root: str) -> None:
    with pytest.raises(Misconfigured, match="TALARIA_MEDIA_ROOTS"):
        Roots([root.format(house)], house / "data")


def test_what_the_relay_may_not_read_is_refused(roots: Roots, house: Path) -> None:
    (house / "root/cap.png").chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(PathDenied, match="may not read"):
            roots.open(str(house / "root/cap.png"))
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    ("becomes", "words"), [("link", "leads through a link"), ("pipe", "regular"), ("hard link", "hard link")]
)
def test_a_file_that_changes_between_the_look_and_the_opening(
    roots: Roots, house: Path, monkeypatch: pytest.MonkeyPatch, becomes: str, words: str
) -> None:
    file, look = house / "root/cap.png", os.stat

    def change(path: Any, **options: Any) -> os.stat_result:
        status = look(path, **options)
        if path == "cap.png" and status.st_ino == before:
            file.unlink()
            if becomes == "link":
                file.symlink_to(house / "data/talaria.db")
            elif becomes == "pipe":
                os.mkfifo(file)
            else:
                os.link(house / "data/talaria.db", file)
        return status

    before = look(file).st_ino
    monkeypatch.setattr(os, "stat", change)
    with pytest.raises(PathDenied, match=words):
        roots.open(str(file))


@pytest.fixture
def swapping(house: Path) -> Iterator[tuple[Path, Path]]:
    """A file and a directory under the root that turn into links and back, as fast as they can."""
    file, directory = house / "root/flip.txt", house / "root/flipping"
    spare_file, spare_directory = house / "root/spare.txt", house / "root/spare"
    file.write_bytes(b"inside")
    directory.mkdir()
    (directory / "secret.txt").write_bytes(b"inside")
    spare_file.symlink_to(house / "outside/secret.txt")
    spare_directory.symlink_to(house / "outside")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for one, other in ((file, spare_file), (directory, spare_directory)):
                aside = one.with_name("aside")
                one.rename(aside)
                other.rename(one)
                aside.rename(other)

    thread = threading.Thread(target=swap)
    thread.start()
    yield file, directory / "secret.txt"
    over.set()
    thread.join()


def test_a_link_that_comes_in_between_is_never_followed(roots: Roots, swapping: tuple[Path, Path]) -> None:
    seen = set()
    for _ in range(1000):
        for path in swapping:
            try:
                seen.add(content(roots, str(path)))
            except (PathDenied, PathMissing) as exc:
                seen.add(exc.code.encode())
    assert seen == {b"inside", b"media_path_denied", b"media_path_missing"}
