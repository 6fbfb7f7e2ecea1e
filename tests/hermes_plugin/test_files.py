"""Files that the agent names: only from the folders that are allowed, whatever is linked and written meanwhile."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def module(home: Path) -> Any:
    return importlib.import_module("deploy.hermes_plugin.files")


@pytest.fixture
def files(module: Any, home: Path, tmp_path: Path) -> Any:
    """`allowed` may be sent from, `outside` may not."""
    for folder in ("allowed/sub", "outside"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.txt").write_text(folder)
    config = importlib.import_module("deploy.hermes_plugin.config")
    return module.Files(config.LinkConfig("http://127.0.0.1:1", "t", "home", (tmp_path / "allowed",)), tmp_path / "bag")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("name", ["sub", "loop", "a\0b", "pipe", "none", "x" * 300, "link", "../outside/a.txt"])
def test_what_is_no_file_there_is_refused_and_holds_nothing(module: Any, files: Any, tmp_path: Path, name: str) -> None:
    allowed = tmp_path / "allowed"
    (allowed / "loop").symlink_to(allowed / "loop")
    (allowed / "link").symlink_to(tmp_path / "outside/a.txt")
    os.mkfifo(allowed / "pipe")
    before = descriptors()
    with pytest.raises(module.FileRefused):
        files.copy(f"{allowed}/{name}", 0)
    assert descriptors() == before


def test_a_folder_that_becomes_a_link_after_the_look_is_not_followed(
    module: Any, files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, roots = tmp_path / "allowed/sub", files._roots

    def change() -> Any:
        """Between the look at the path and its opening."""
        folder.rename(tmp_path / "aside")
        folder.symlink_to(tmp_path / "outside")
        return roots()

    monkeypatch.setattr(module.Files, "_roots", lambda _: change())
    with pytest.raises(module.FileRefused, match="cannot be read"):
        files.copy(str(folder / "a.txt"), 0)


def test_a_file_that_grows_is_sent_as_it_was(
    module: Any, files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, look = tmp_path / "allowed/log", os.fstat
    log.write_bytes(b"one")

    def grow(descriptor: int) -> os.stat_result:
        status = look(descriptor)
        with log.open("ab") as writer:
            writer.write(b"two")
        return status

    monkeypatch.setattr(module.os, "fstat", grow)
    copy = files.copy(str(log), 0)
    monkeypatch.undo()
    assert copy.read_bytes() == b"one"
    assert copy.name == "log"


@pytest.mark.parametrize("roots", ["/srv/a,/srv/b", "/srv/a:/srv/b"])
def test_folders_are_named_as_the_relay_or_as_a_path_names_them(roots: str) -> None:
    config = importlib.import_module("deploy.hermes_plugin.config")
    found = config.LinkConfig.read(
        {}, {"TALARIA_LINK_TOKEN": "t", "TALARIA_MEDIA_ROOTS": roots, "TALARIA_LINK_URL": "http://127.0.0.1:1"}
    )
    assert found.media_roots == (Path("/srv/a"), Path("/srv/b"))
