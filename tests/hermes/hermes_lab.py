"""The running lab as tests see it: where it listens, what its model was asked, and how to take it down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.requires import HERMES_VERSION

LAB = Path(__file__).parent / "lab" / "run_hermes.py"
PLUGIN = LAB.parent / "plugins" / "side_by_side"
SPEC = f"hermes-agent[mcp,sms,web]=={HERMES_VERSION}"
INSTALL_S = 600  # pip, on a slow line
THREADS = min(32, (os.cpu_count() or 1) + 4)  # in which Hermes runs turns, and reads its rows
APPROVAL_S = 10  # how long Hermes waits for an approval
CONTEXT = 64_000  # tokens; less is refused
OPTIONS = [
    "--warm", "--llm-port", "0", "--api-port", "0", "--dash-port", "0", "--gated-port", "0",
    "--plugin", str(PLUGIN),
    "--set", f"approvals.timeout={APPROVAL_S}",
    # a conversation of a few kilobytes can be compressed, into another session
    "--set", f"model.context_length={CONTEXT}", "--set", "compression.in_place=false",
    "--set", "compression.protect_first_n=0", "--set", "compression.protect_last_n=4",
    "--set", "compression.target_ratio=0.05",
]  # fmt: skip


@dataclass(frozen=True)
class Lab:
    """Hermes's gateway, its dashboard on loopback and behind a login, and the model of all of them."""

    root: Path
    url: str
    key: str
    dashboard: str
    token: str
    gated: str
    username: str
    password: str

    @classmethod
    def start(cls, root: Path, options: Sequence[str] = OPTIONS) -> Self:
        state = json.loads(run_lab("start", *options, root=root))
        urls = state["urls"]
        return cls(
            root, urls["api"], state["api_key"], urls["dashboard"], state["dashboard_token"], urls["gated"],
            state["dashboard_user"], state["dashboard_password"],
        )  # fmt: skip

    @property
    def model_log(self) -> Path:
        """A line of JSON for each request to the model and for its outcome."""
        return self.root / "run" / "llm.jsonl"

    def model_calls(self, marker: str) -> list[dict[str, Any]]:
        """Requests of turns to the model whose user message holds this text. Titles and summaries quote it too."""
        lines = self.model_log.read_text().splitlines()
        calls = [json.loads(line) for line in lines]
        return [call for call in calls if call["event"] == "request" and call["tools"] and marker in call["user"]]

    def times_run(self, marker: str) -> int:
        """How many turns began with this text: a tool's result is another request of the same turn.

        Hermes puts a text that got no answer before the next one, with a blank line between.
        """
        began = (call for call in self.model_calls(marker) if not call["after_tool"])
        return sum(marker in call["user"].split("\n\n")[-1] for call in began)

    def stop_model(self) -> None:
        self.kill("llm")

    def start_model(self) -> None:
        run_lab("restart", "llm", root=self.root)

    def restart(self, *names: str) -> None:
        """As an update does: SIGTERM, then new processes on the same ports. Starts again what was killed, too."""
        run_lab("restart", ",".join(names or ("gateway",)), root=self.root)

    def kill(self, *names: str) -> None:
        state = json.loads((self.root / "run" / "state.json").read_text())
        for name in names:
            os.kill(state["procs"][name]["pid"], signal.SIGKILL)


def run_lab(*arguments: str, root: Path) -> str:
    command = [sys.executable, str(LAB), *arguments, "--root", str(root), "--spec", SPEC]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
