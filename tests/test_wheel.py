"""The wheel is whole: installed elsewhere, the command starts and finds its migrations and its web page."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ASK_WHERE_THINGS_ARE = """
import app
from app.db.migrate import migrations_dir
from app.web import static_dir
print(app.__file__)
print(migrations_dir() / "env.py")
print(*(migrations_dir() / "versions").glob("*.py"), sep="\\n")
print(static_dir() / "index.html")
from app.cli.hermes_home import plugin_files
print(plugin_files() / "plugin.yaml")
print(plugin_files() / "adapter.py")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment that holds the wheel and, borrowed from ours, what it depends on."""
    tmp = tmp_path_factory.mktemp("wheel")
    _run(tmp, sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp, ROOT)
    (wheel,) = tmp.glob("talaria-*.whl")
    _run(tmp, sys.executable, "-m", "venv", "--without-pip", tmp / "venv")
    python = tmp / "venv" / "bin" / "python"
    _run(tmp, sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    site = _run(tmp, python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # A plain path line, so that the .pth files in there (one is this project, editable) are not read.
    Path(site, "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


def test_the_command_runs_elsewhere(installed: Path, tmp_path: Path) -> None:
    assert "serve" in _run(tmp_path, installed / "talaria", "--help")


def test_migrations_the_page_and_the_plugin_are_inside(installed: Path, tmp_path: Path) -> None:
    files = [Path(line) for line in _run(tmp_path, installed / "python", "-c", ASK_WHERE_THINGS_ARE).split()]
    assert len(files) >= 6
    for file in files:
        assert file.is_file()
        assert file.is_relative_to(installed.parent), "found outside the installed wheel"


def _run(cwd: Path, *command: str | Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_image_brings_all_that_the_wheel_is_made_of() -> None:
    """Its build has no more than the Dockerfile copies and .dockerignore lets through."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    dockerfile, let_through = (ROOT / "Dockerfile").read_text(), (ROOT / ".dockerignore").read_text().split()
    for source in project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]:
        assert f"COPY {source} {source}\n" in dockerfile
        assert f"!{source}/" in let_through
