"""The real configuration, writing into memory, with the process's logging put back afterwards."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from _pytest.logging import LogCaptureHandler

from app.logs import configure, redaction
from app.settings import LogSettings

Format = Literal["text", "json"]


class Written:
    """What the handler wrote."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def records(self) -> list[dict[str, Any]]:
        """Of the JSON format: every line is one record."""
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def last(self) -> dict[str, Any]:
        return self.records[-1]


@contextmanager
def configured(log_format: Format, level: Literal["debug", "info", "warning", "error"] = "info") -> Iterator[Written]:
    named = [x for x in logging.root.manager.loggerDict.values() if isinstance(x, logging.Logger)]
    loggers = [logging.getLogger(), *named]
    before = [(x, list(x.handlers), x.level, x.propagate, x.disabled) for x in loggers]
    hooks = sys.excepthook, threading.excepthook
    known, redaction._known = redaction._known, redaction._Known()
    stream = io.StringIO()
    configure(LogSettings(log_level=level, log_format=log_format), stream)
    try:
        yield Written(stream)
    finally:
        logging.captureWarnings(False)
        sys.excepthook, threading.excepthook = hooks
        redaction._known = known
        for logger, handlers, old_level, propagate, disabled in before:
            logger.handlers[:] = handlers
            logger.setLevel(old_level)
            logger.propagate, logger.disabled = propagate, disabled


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Without pytest's own handlers, which come to the root after the fixtures and choke on what these tests log."""
    root = logging.getLogger()
    kept = list(root.handlers)
    root.handlers[:] = [handler for handler in kept if not isinstance(handler, LogCaptureHandler)]
    try:
        return (yield)
    finally:
        root.handlers[:] = kept


@pytest.fixture(params=["text", "json"])
def written(request: pytest.FixtureRequest) -> Iterator[Written]:
    """In both formats, since what is true of one must be true of the other."""
    with configured(request.param) as output:
        yield output


@pytest.fixture
def as_json() -> Iterator[Written]:
    with configured("json") as output:
        yield output


@pytest.fixture
def as_text() -> Iterator[Written]:
    with configured("text") as output:
        yield output
