"""Only what every test shares. Fixtures live in the conftest of the directory that uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.relay import RunningRelay, running, settings_for
from tests.requires import REQUIRE_ALL


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    """A relay with no agent behind it."""
    async with running(settings_for(tmp_path)) as relay:
        yield relay


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, pytest.TestReport]:
    """Where everything is required a skip is a failure, whoever asked for it."""
    report: pytest.TestReport = yield
    return _no_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
    report: pytest.CollectReport = yield
    return _no_skip(report)


def _no_skip(report: Report) -> Report:
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped although REQUIRE_ALL=1: {report.longrepr}"
    return report
