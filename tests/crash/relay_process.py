"""The relay as a process of its own, on one port and one data directory, to be killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.ports import free_port


class RelayProcess:
    def __init__(self, data_dir: Path, **environ: str) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.kills = 0
        self._log = data_dir.parent / "relay.log"
        self._environ: Mapping[str, str] = os.environ | {
            "TALARIA_DATA_DIR": str(data_dir), "TALARIA_PORT": str(self.port), "TALARIA_HERMES_API_URL": "",
            "TALARIA_LOG_LEVEL": "error", "PYTHONPATH": str(Path(__file__).parents[2]),
        } | {f"TALARIA_{name}": value for name, value in environ.items()}  # fmt: skip
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns once it listens."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "app", "serve", env=dict(self._environ), cwd=self._log.parent,
                stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 30)
        assert b"listens" in line, self._log.read_text()

    async def kill(self) -> None:
        """-9: no drain, no flush, nothing."""
        await self._end(signal.SIGKILL)
        self.kills += 1

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        await asyncio.wait_for(self._process.wait(), 20)

    @property
    def operator(self) -> str:
        return (self.data_dir / "operator-token").read_text().strip()
