from __future__ import annotations

import asyncio

import pytest

from app.tasks import Supervisor


async def held(work: BaseException) -> None:
    """A supervisor with one task that ends like this, until the loop ends or the task has."""

    async def fails() -> None:
        raise work

    async with Supervisor() as tasks:
        await asyncio.wait([tasks.start(fails(), "the task")])


async def test_a_task_that_fails_is_logged_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    await held(ValueError("why"))
    [record] = caplog.records
    assert (record.levelname, record.task, record.exc_info and record.exc_info[0]) == ("ERROR", "the task", ValueError)  # type: ignore[attr-defined]


def test_a_signal_that_ends_the_process_is_no_failure_of_the_task_it_meets(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SystemExit):
        asyncio.run(held(SystemExit(143)))
    assert not caplog.records
