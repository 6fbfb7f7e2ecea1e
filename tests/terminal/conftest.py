"""Shells in tests: a home and a tmux server of the test's own, and a relay that knows tmux or does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.relay import RunningRelay, running, settings_for
from tests.requires import requires

SHELL = "/bin/bash"
PROMPT = "ready> "


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home, where bash has a prompt of its own and no bracketed paste."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bash_profile").write_text(f"PS1='{PROMPT}'\nunset PROMPT_COMMAND\nunset HISTFILE\n")
    (home / ".inputrc").write_text("set enable-bracketed-paste off\n")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def tmux_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a tmux server that ends with the test."""
    requires("tmux")
    directory = Path(tempfile.mkdtemp(prefix="tmux"))  # the path of a socket must be short
    monkeypatch.setenv("TMUX_TMPDIR", str(directory))
    yield directory
    subprocess.run(["tmux", "kill-server"], capture_output=True, env=os.environ | {"TMUX_TMPDIR": str(directory)})
    shutil.rmtree(directory)


@pytest.fixture
async def with_tmux(home: Path, tmux_server: Path, tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with running(settings_for(tmp_path, TERMINAL_SHELL=SHELL)) as relay:
        yield relay


@pytest.fixture
def no_tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with what these tests run, and without tmux."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "cat", "env", "grep", "head", "seq", "sh", "sleep", "stty", "wc", "yes"):
        (programs / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(programs))


@pytest.fixture
async def bare(home: Path, no_tmux: None, tmp_path: Path) -> AsyncIterator[RunningRelay]:
    async with running(settings_for(tmp_path, TERMINAL_SHELL=SHELL)) as relay:
        yield relay


@pytest.fixture(params=["with_tmux", "bare"])
def either(request: pytest.FixtureRequest) -> str:
    """The name of a fixture: what must be so whoever holds the shell."""
    return str(request.param)


@pytest.fixture
def relay(either: str, request: pytest.FixtureRequest) -> RunningRelay:
    """With tmux, and without."""
    found: RunningRelay = request.getfixturevalue(either)
    return found
