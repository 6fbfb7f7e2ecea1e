"""What tests need from the machine. Missing means skipped with a reason, or failed where REQUIRE_ALL=1 (CI).

browser = requires("chromium")      # the path of the executable; skips or fails the test if there is none
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

REQUIRE_ALL = os.environ.get("REQUIRE_ALL") == "1"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "talaria-tests"
HERMES_VERSION = "0.19.0"
HERMES_LAB = f"hermes-{HERMES_VERSION}-mcp"  # a directory for each set of its extras


def _program(*names: str, also_in: tuple[str, ...] = ()) -> Callable[[], Path | None]:
    """The first of these names on PATH or in a directory that Debian keeps off a user's PATH."""

    def find() -> Path | None:
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *also_in])
        found = (shutil.which(name, path=path) for name in names)
        return next((Path(program) for program in found if program), None)

    return find


def _postgres() -> Path | None:
    """The newest server's bin directory."""
    newest_first = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: -int(p.parts[-3]))
    if newest_first:
        return newest_first[0].parent
    on_path = shutil.which("postgres")
    return Path(on_path).parent if on_path else None


def _hermes() -> Path | None:
    """The lab's root. Installing it costs a download, so only CI does that unasked."""
    root = CACHE / HERMES_LAB
    return root if REQUIRE_ALL or (root / "venv" / "bin" / "hermes").exists() else None


_NEEDS: dict[str, tuple[Callable[[], Path | None], str]] = {
    "chromium": (_program("chromium", "chromium-browser", "google-chrome"), "apt install chromium"),
    "tmux": (_program("tmux"), "apt install tmux"),
    "redis-server": (_program("redis-server", also_in=("/usr/sbin",)), "apt install redis-server"),
    "sshd": (_program("sshd", also_in=("/usr/sbin",)), "apt install openssh-server"),
    "caddy": (_program("caddy"), "apt install caddy"),
    "nginx": (_program("nginx", also_in=("/usr/sbin",)), "apt install nginx-light"),
    "haproxy": (_program("haproxy", also_in=("/usr/sbin",)), "apt install haproxy"),
    "podman": (_program("podman"), "apt install podman"),
    "systemd-analyze": (_program("systemd-analyze"), "apt install systemd"),
    "postgres": (_postgres, "apt install postgresql"),
    "hermes": (_hermes, f"python tests/hermes/lab/run_hermes.py install --root {CACHE / HERMES_LAB}"),
}


def requires(name: str) -> Path:
    """Where `name` is. Skips the calling test or fixture if it is missing."""
    find, remedy = _NEEDS[name]
    if (found := find()) is not None:
        return found
    reason = f"{name} is not installed: {remedy}"
    if REQUIRE_ALL:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
