"""schemathesis over `/openapi.json`: whatever is asked, the relay does not fail, and answers as it says.

`make fuzz` asks for longer. Everything that the relay would reach for is on loopback, and nothing listens there.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bridge.phone_simulator import simulated
from tests.relay import RunningRelay, running, settings_for

# Routes that wait are not given time to; the session that may be ended is one that nobody uses.
CONFIG = """
request-timeout = 10
workers = 1
suppress-health-check = ["all"]
warnings = false

[parameters]
"query.wait" = 0
"query.timeout" = 0
"header.X-Talaria-Timeout" = "2"

[checks]
# Schemas made of examples are wider than what is taken.
negative_data_rejection.enabled = false
positive_data_acceptance.enabled = false

[[operations]]
include-path = "/relay/stop"  # it would
enabled = false

[[operations]]
include-path = "/doctor"  # it looks at the outside
enabled = false

[[operations]]
include-path = "/sessions/{prefix}"
parameters = { "path.prefix" = "%(prefix)s" }

[[operations]]
include-path-regex = "/media/(upload|register)"
checks.allow_header_conformance.enabled = false  # GET means /media/{token} there
"""
TOKEN = """
[auth.openapi.%s]
bearer = "%s"
"""


@dataclass(frozen=True)
class Fuzzer:
    """`run` raises AssertionError with schemathesis' report."""

    url: str
    config: str
    tokens: dict[str, str]
    home: Path

    async def run(self, who: Sequence[str], phases: str, examples: int) -> None:
        file = self.home / "schemathesis.toml"
        file.write_text(self.config + "".join(TOKEN % (name, self.tokens[name]) for name in who))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
            f"--config-file={file}", "run", f"{self.url}/openapi.json", f"--phases={phases}",
            f"--max-examples={examples}", "--generation-database=none", "--no-color", "--continue-on-failure",
            cwd=self.home, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            report, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0, report.decode()


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    """Commands reach the phone without a word of its owner, who is not there."""
    (tmp_path / "files").mkdir()
    settings = settings_for(
        tmp_path / "data", BRIDGE_UNATTENDED="1", NTFY_URL="http://127.0.0.1:9", MEDIA_ROOTS=str(tmp_path / "files")
    )
    async with running(settings) as relay:
        yield relay


@pytest.fixture
async def fuzzer(relay: RunningRelay, tmp_path: Path) -> AsyncIterator[Fuzzer]:
    unused = await relay.connect()
    (session,) = await relay.relay.sessions.list()
    async with simulated(relay) as simulator:
        tokens = {
            "operator": relay.operator()["Authorization"].removeprefix("Bearer "),
            "link": relay.relay.link.read(),
            "device": simulator.phone.token,
        }
        assert unused.token != tokens["device"]
        yield Fuzzer(relay.url, CONFIG % {"prefix": session.prefix}, tokens, tmp_path)


async def test_no_request_makes_the_relay_fail(fuzzer: Fuzzer, caplog: pytest.LogCaptureFixture) -> None:
    """With each token where it is asked for; then a device alone, and the link."""
    await fuzzer.run(["operator", "link", "device"], "examples,coverage", 1)
    await fuzzer.run(["device"], "fuzzing", 2)
    await fuzzer.run(["link"], "fuzzing", 1)
    assert failures(caplog) == []


@pytest.mark.nightly
@pytest.mark.parametrize("who", [["operator", "link", "device"], ["operator"], ["link"], ["device"]], ids="-".join)
async def test_nor_do_many(fuzzer: Fuzzer, caplog: pytest.LogCaptureFixture, who: list[str]) -> None:
    await fuzzer.run(who, "examples,coverage,fuzzing,stateful", 150)
    assert failures(caplog) == []


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
