"""The real command in processes of its own, against the real relay that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
WAIT_S = 30.0


@dataclass
class Talaria:
    """The command with the settings of one relay; `url` is that relay's, once it listens."""

    home: Path
    settings: dict[str, str] = field(default_factory=dict)
    url: str = ""

    @property
    def data(self) -> Path:
        return self.home / "data"

    def environ(self, **more: str) -> dict[str, str]:
        named = {f"TALARIA_{name}": value for name, value in (self.settings | more).items()}
        return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(self.home)} | named

    def run(self, *args: str, status: int = 0, **settings: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "app", *args],
            cwd=self.home, env=self.environ(**settings), capture_output=True, text=True, timeout=WAIT_S,
        )  # fmt: skip
        assert done.returncode == status, f"{args} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    @contextmanager
    def started(self, *args: str, stdin: int | None = None, **settings: str) -> Iterator[Running]:
        """A command that goes on. Whatever happens it is gone at the end. `stdin`: a descriptor, else what ours is."""
        with TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "app", *args],
                cwd=self.home, env=self.environ(**settings), text=True,
                stdin=stdin, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
            with process:
                try:
                    yield Running(process, errors)
                finally:
                    process.kill()

    def redeem(self, code: str, **fields: Any) -> dict[str, Any]:
        """As a phone without a socket does. Returns what auth.ok would say."""
        answer = httpx.post(f"{self.url}/pairing/redeem", json={"pairing_code": code, **fields}, trust_env=False)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def status_of(self, token: str, path: str = "/session") -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.url}{path}", headers=headers, trust_env=False).status_code


@dataclass
class Running:
    process: subprocess.Popen[str]
    stderr: IO[str]
    said: str = ""

    def until(self, start: str) -> str:
        """Read lines up to the one that starts so; returns the rest of that line."""
        for line in self._lines():
            if line.startswith(start):
                return line.removeprefix(start).strip()
        raise AssertionError(f"it never said {start!r}, but: {self.said}{self.errors()}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit status."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        for _ in self._lines():
            pass
        return self.process.wait()

    def errors(self) -> str:
        self.stderr.seek(0)
        return self.stderr.read()

    def _lines(self) -> Iterator[str]:
        """Until it ends; it is killed if that takes too long."""
        assert self.process.stdout is not None
        too_late = threading.Timer(WAIT_S, self.process.kill)
        too_late.start()
        try:
            for line in iter(self.process.stdout.readline, ""):
                self.said += line
                yield line
        finally:
            too_late.cancel()


@pytest.fixture
def talaria(tmp_path: Path) -> Talaria:
    """No relay runs."""
    return Talaria(tmp_path, {"PORT": "1", "HERMES_API_URL": ""})


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talaria]:
    """With a relay that runs. Its tests share it, so each pairs its own devices."""
    command = Talaria(tmp_path_factory.mktemp("relay"), {"HERMES_API_URL": ""})
    with command.started("serve", PORT="0") as serving:
        command.url = serving.until("Talaria 0.1.0 listens on ")
        command.settings["PORT"] = command.url.rpartition(":")[2]
        yield command
        assert serving.stop() == 0, serving.errors()
