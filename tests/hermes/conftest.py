"""A real Hermes Agent with a made-up model behind it, and a relay in front. Nothing leaves this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.relay import RunningRelay, running, settings_for
from tests.requires import HERMES_VERSION, requires

LAB = Path(__file__).parent / "lab" / "run_hermes.py"
SPEC = f"hermes-agent[sms,web]=={HERMES_VERSION}"
INSTALL_S = 600  # pip, on a slow line
OPTIONS = [
    "--no-dashboard", "--no-gated", "--no-titles", "--warm",
    "--llm-port", "0", "--api-port", "0", "--dash-port", "0", "--gated-port", "0",
]  # fmt: skip


@dataclass(frozen=True)
class Lab:
    """A running Hermes gateway and its model."""

    root: Path
    url: str
    key: str

    def model_calls(self, marker: str) -> list[dict[str, Any]]:
        """Requests to the model whose user message holds this text."""
        lines = (self.root / "run" / "llm.jsonl").read_text().splitlines()
        calls = [json.loads(line) for line in lines]
        return [call for call in calls if call["event"] == "request" and marker in call["user"]]

    def stop_model(self) -> None:
        state = json.loads((self.root / "run" / "state.json").read_text())
        os.kill(state["procs"]["llm"]["pid"], signal.SIGKILL)

    def start_model(self) -> None:
        run_lab("restart", "llm", root=self.root)

    def restart(self) -> None:
        """As an update does: SIGTERM, then a new process on the same port."""
        run_lab("restart", "gateway", root=self.root)


def run_lab(*arguments: str, root: Path) -> str:
    command = [sys.executable, str(LAB), *arguments, "--root", str(root), "--spec", SPEC]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Installed once for all runs, in HERMES_LAB_ROOT or the cache; started anew for each, with a state of its own."""
    given = os.environ.get("HERMES_LAB_ROOT")
    shared = Path(given) if given else requires("hermes")
    run_lab("install", root=shared)
    root = tmp_path_factory.mktemp("hermes")
    (root / "venv").symlink_to(shared / "venv")
    try:
        started = json.loads(run_lab("start", *OPTIONS, root=root))
        yield Lab(root, started["urls"]["api"], started["api_key"])
    finally:
        run_lab("stop", root=root)


@pytest.fixture
async def relay(lab: Lab, tmp_path: Path) -> AsyncIterator[RunningRelay]:
    settings = settings_for(tmp_path, HERMES_API_URL=lab.url, HERMES_API_KEY=lab.key)
    async with running(settings) as relay:
        yield relay
