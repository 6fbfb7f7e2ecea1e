"""The units, read by a real systemd."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.requires import requires

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"


@pytest.mark.parametrize(("name", "options"), [("talaria", []), ("talaria-user", ["--user"])])
def test_a_unit_is_sound(tmp_path: Path, name: str, options: list[str]) -> None:
    verify = requires("systemd-analyze")
    unit = (UNITS / f"{name}.service").read_text()
    start = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    assert start.endswith("/bin/talaria serve")
    (tmp_path / "talaria.service").write_text(unit.replace(start, "ExecStart=/bin/true serve"))
    done = subprocess.run(
        [verify, *options, "verify", str(tmp_path / "talaria.service")],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.parametrize("name", ["talaria", "talaria-user"])
def test_tmux_and_its_socket_outlive_the_relay(name: str) -> None:
    lines = (UNITS / f"{name}.service").read_text().splitlines()
    assert "KillMode=process" in lines
    assert not any(line.startswith("PrivateTmp=") for line in lines)  # systemd empties it with each stop
