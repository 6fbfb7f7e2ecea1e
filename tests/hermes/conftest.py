"""A real Hermes Agent with a made-up model behind it, and a relay in front. Nothing leaves this machine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import Talaria
from tests.hermes import matrix
from tests.hermes.gateway_lab import GatewayLab, Owner, start
from tests.hermes.hermes_lab import Lab, run_lab
from tests.hermes.ways import running_over
from tests.relay import RunningRelay
from tests.requires import requires


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Installed once for all runs, in HERMES_LAB_ROOT or the cache; started anew for each, with a state of its own."""
    given = os.environ.get("HERMES_LAB_ROOT")
    shared = Path(given) if given else requires("hermes")
    run_lab("install", root=shared)
    root = tmp_path_factory.mktemp("hermes")
    (root / "venv").symlink_to(shared / "venv")
    try:
        yield Lab.start(root)
    finally:
        run_lab("stop", root=root)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayLab]:
    """A Hermes whose messaging gateway is linked to a relay, both of this module alone."""
    given = os.environ.get("HERMES_LAB_ROOT")
    shared = Path(given) if given else requires("hermes")
    run_lab("install", root=shared)
    root = tmp_path_factory.mktemp("gateway")
    (root / "venv").symlink_to(shared / "venv")
    command = Talaria(tmp_path_factory.mktemp("relay"), {"HERMES_API_URL": "", "HERMES_DASHBOARD_URL": "", "PORT": "0"})
    with ExitStack() as stack:
        stack.callback(run_lab, "stop", root=root)
        yield start(root, stack.enter_context, command)


@pytest.fixture
async def owner(gateway: GatewayLab) -> AsyncIterator[Owner]:
    """With a phone, while the gateway is linked."""
    await gateway.linked()
    async with gateway.phone() as owner:
        yield owner


@pytest.fixture
async def relay(lab: Lab, tmp_path: Path) -> AsyncIterator[RunningRelay]:
    """Over the session stream, unless the test names another way with `way`."""
    async with running_over("session_stream", lab, tmp_path) as relay:
        yield relay


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in matrix.lines():
        terminalreporter.write_line(line)
