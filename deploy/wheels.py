"""Does every dependency of the relay have a wheel for the machines it is meant for? `python -m deploy.wheels`.

A home server has no compiler, and the image is built without one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PYTHON = "3.11"  # of the image
MACHINES = ("aarch64", "x86_64")


def main() -> int:
    with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["project"]["dependencies"]
    missing = [machine for machine in MACHINES if not has_all(machine, needed)]
    return 1 if missing else 0


def has_all(machine: str, needed: list[str]) -> bool:
    """Lets pip resolve them for that machine without installing anything."""
    platforms = [f"--platform=manylinux{tag}_{machine}" for tag in ("2014", "_2_17", "_2_28", "_2_31", "_2_34")]
    with tempfile.TemporaryDirectory() as nowhere:
        done = subprocess.run(
            [
                sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary=:all:",
                "--disable-pip-version-check", "--quiet", "--report=-", f"--python-version={PYTHON}",
                f"--target={nowhere}", *platforms, *needed,
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    print(f"{machine}: {'every dependency has a wheel' if done.returncode == 0 else done.stderr.strip()}")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
