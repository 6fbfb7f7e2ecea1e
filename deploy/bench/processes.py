"""Starts what is measured, each in a process of its own on a free loopback port, and ends it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from deploy.bench import machine, nginx

ROOT = Path(__file__).parents[2]
START_SECONDS = 30
STOP_SECONDS = 10


class Broken(Exception):
    """Something that is measured did not start or did not do its work."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """That of the agent: a socket which runs turns as well."""

    url: str
    token: str


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    pid: int
    data_dir: Path
    key: str = ""  # what it asks for: the operator token or the API key
    dashboard: Dashboard | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def http(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False)


@asynccontextmanager
async def bare_echo(scratch: Path) -> AsyncIterator[Server]:
    async with _process(["deploy.bench.bare"], scratch, core=0) as process:
        yield Server((await _said(process, scratch))["url"], process.pid, scratch)


@asynccontextmanager
async def raw_fan(scratch: Path) -> AsyncIterator[Server]:
    async with _process(["deploy.bench.fan"], scratch, core=0) as process:
        yield Server((await _said(process, scratch))["url"], process.pid, scratch)


@asynccontextmanager
async def origin(scratch: Path) -> AsyncIterator[Server]:
    """What plays Hermes' API server where bytes are passed on."""
    async with _process(["deploy.bench.origin"], scratch, core=None) as process:
        yield Server((await _said(process, scratch))["url"], process.pid, scratch, secrets.token_hex(16))


@asynccontextmanager
async def httpx_proxy(scratch: Path, behind: Server) -> AsyncIterator[Server]:
    async with _process(["deploy.bench.httpx_proxy", behind.url], scratch, core=0) as process:
        yield Server((await _said(process, scratch))["url"], process.pid, scratch)


@asynccontextmanager
async def nginx_proxy(scratch: Path, behind: Server, program: str) -> AsyncIterator[Server]:
    """`pid` is its worker's."""
    config, port = nginx.configured(scratch, f"{behind.host}:{behind.port}")
    process = await asyncio.create_subprocess_exec(
        program, "-c", str(config), "-p", str(scratch), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: pin(0),
    )  # fmt: skip
    try:
        server = Server(f"http://127.0.0.1:{port}", process.pid, scratch)
        await _answers(server, process, scratch, "/v1/models")
        yield Server(server.url, machine.first_child(process.pid), scratch)
    finally:
        await _end(process)


@asynccontextmanager
async def stand_in(scratch: Path) -> AsyncIterator[Server]:
    """The agent: it streams as fast, or as evenly, as a message asks it to."""
    key, token = secrets.token_hex(16), secrets.token_hex(16)
    asks = ("--key", key, "--dashboard-token", token)
    async with _process(["app.demo", "--delay", "0", *asks], scratch, core=None) as process:
        said = await _said(process, scratch)
        yield Server(said["url"], process.pid, scratch, key, Dashboard(said["dashboard_url"], token))


@asynccontextmanager
async def relay(
    scratch: Path, agent: Server | None = None, dashboard: Dashboard | None = None, *, core: int | None = 0,
    also: Mapping[str, str] | None = None,
) -> AsyncIterator[Server]:  # fmt: skip
    """The relay as `talaria serve` runs it, with `also` in its environment. The same `scratch` again is the same relay
    restarted. Without a dashboard it runs turns over the session stream of its agent.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ = {
        "TALARIA_DATA_DIR": str(scratch / "data"),
        "TALARIA_PORT": str(port),
        "TALARIA_LOG_LEVEL": "warning",
        "TALARIA_HERMES_API_URL": agent.url if agent else "",
        "TALARIA_HERMES_API_KEY": agent.key if agent else "",
        "TALARIA_HERMES_DASHBOARD_URL": dashboard.url if dashboard else "",
        "TALARIA_HERMES_DASHBOARD_TOKEN": dashboard.token if dashboard else "",
        **(also or {}),
    }
    async with _process(["app", "serve"], scratch, core=core, environ=environ) as process:
        server = Server(f"http://127.0.0.1:{port}", process.pid, scratch / "data")
        await _answers(server, process, scratch)
        yield Server(server.url, server.pid, server.data_dir, (server.data_dir / "operator-token").read_text().strip())


@asynccontextmanager
async def _process(
    module: Sequence[str], scratch: Path, *, core: int | None, environ: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`python -m …` in `scratch`, so that no `.env` of the caller counts. `core` is where it stays."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TALARIA_")}
    with _log(scratch).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *module),
            cwd=scratch,
            env={**clean, "PYTHONPATH": str(ROOT), **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if environ is None else log,
            stderr=log,
            preexec_fn=lambda: pin(core),
        )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


CORES = sorted(os.sched_getaffinity(0))


def pin(core: int | None, pid: int = 0) -> None:
    """What is measured runs on the first core, the client on the second: neither then takes the other's time."""
    if core is not None and len(CORES) > 1:
        os.sched_setaffinity(pid, {CORES[core]})


async def _said(process: asyncio.subprocess.Process, scratch: Path) -> dict[str, str]:
    """Where a server listens, which it prints when it does."""
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        line = await process.stdout.readline()
    if not line:
        raise Broken(f"a server did not start:\n{_log(scratch).read_text()[-2000:]}")
    said: dict[str, str] = json.loads(line)
    return said


async def _answers(
    server: Server, process: asyncio.subprocess.Process, scratch: Path, path: str = "/livez"
) -> None:  # fmt: skip
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    async with server.http() as http:
        while process.returncode is None and asyncio.get_running_loop().time() < deadline:
            try:
                if (await http.get(path)).status_code == 200:
                    return
            except httpx.ConnectError:
                await asyncio.sleep(0.05)
    log = _log(scratch).read_text() if _log(scratch).exists() else ""
    raise Broken(f"a server did not start:\n{log[-2000:]}")


def _log(scratch: Path) -> Path:
    return scratch / "log.txt"
