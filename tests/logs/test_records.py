"""What a record looks like, and that nothing somebody logs can break or forge one."""

from __future__ import annotations

import asyncio
import enum
import io
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from app.logs import bind, configure
from app.settings import LogSettings

from .conftest import Written, configured

log = logging.getLogger("talaria.test")


class Hostile:
    def __str__(self) -> NoReturn:
        raise RuntimeError("no")

    __repr__ = __str__


class HostileMapping(dict[str, Any]):
    def items(self) -> NoReturn:
        raise RuntimeError("no")


class Colour(enum.IntEnum):
    RED = 1


def test_json_has_the_standing_fields(as_json: Written) -> None:
    log.warning("socket closed", extra={"device": "dev-1", "close_code": 4401})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", as_json.last.pop("ts"))
    assert as_json.last | {"ts": ""} == {
        "ts": "",
        "level": "warning",
        "logger": "talaria.test",
        "event": "socket closed",
        "device": "dev-1",
        "close_code": 4401,
    }


def test_text_is_one_line_without_colour(as_text: Written) -> None:
    log.warning("socket closed", extra={"device": "dev-1", "note": "two words"})
    (line,) = as_text.text.splitlines()
    assert line.endswith("[warning  ] socket closed [talaria.test] device=dev-1 note='two words'")


def test_a_terminal_gets_colour() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with configured("text"):
        configure(LogSettings(), terminal)
        log.info("hello\x1b[2J")
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b[2J" not in terminal.getvalue()


async def test_bound_fields_follow_the_task(as_json: Written) -> None:
    async def handle(n: int) -> None:
        with bind(request_id=f"r{n}", frame_id=None):
            await asyncio.sleep(0)
            log.info("handled", extra={"n": n})

    async with asyncio.TaskGroup() as group:
        for n in range(3):
            group.create_task(handle(n))
    log.info("after")
    assert [(r["request_id"], r["n"]) for r in as_json.records[:3]] == [("r0", 0), ("r1", 1), ("r2", 2)]
    assert not {"request_id", "frame_id"} & as_json.last.keys()


def test_the_level_is_the_projects_and_libraries_are_quieter() -> None:
    with configured("json", "info") as output:
        log.debug("no")
        log.info("yes")
        for name in ("httpx", "httpcore.http11", "websockets.client", "alembic.runtime", "sqlalchemy.engine", "x"):
            logging.getLogger(name).info("no")
        logging.getLogger("uvicorn.access").critical("no")
        logging.getLogger("uvicorn.error").error("yes")
    assert [record["event"] for record in output.records] == ["yes", "yes"]


def test_a_librarys_own_handler_is_taken_away(written: Written) -> None:
    stream = io.StringIO()
    logger = logging.getLogger("somebody.else")
    logger.addHandler(logging.StreamHandler(stream))
    logger.propagate = False
    with configured("text") as output:
        logger.error("hello")
    assert stream.getvalue() == ""
    assert "hello" in output.text
    logger.handlers.clear()
    logger.propagate = True


def test_warnings_are_logged(as_json: Written) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("token=hunter2", stacklevel=1)
    logging.captureWarnings(False)
    assert as_json.last["logger"] == "py.warnings"
    assert "hunter2" not in as_json.text


FORGED = "2026-01-01T00:00:00.000Z [info     ] operator logged in"


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c"])
def test_no_value_can_forge_a_record(written: Written, end: str) -> None:
    value = f"x{end}{FORGED}"
    log.info(value)
    log.info("said %s", value, extra={"a": value, "b": [value], "c": {value: value}, value: 1})
    assert len(written.text.splitlines()) == 2


def test_no_exception_can_forge_a_record(written: Written) -> None:
    log.error("failed", exc_info=ValueError(f"x\n{FORGED}\r{FORGED}\u2028{FORGED}"))
    assert not any(line.startswith("2026-01-01") for line in written.text.splitlines())


@pytest.mark.parametrize("char", ["\x1b", "\x00", "\x08", "\x9b", "\u202e", "\u200b", "\u2066", "\ud800", "\x7f"])
def test_control_characters_are_escaped(written: Written, char: str) -> None:
    log.error(f"a{char}b", extra={"a": f"a{char}b", f"n{char}": 1}, exc_info=ValueError(f"a{char}b"))
    assert char not in written.text
    assert written.text.isascii() or char.encode("unicode_escape").decode() in written.text


def _endless() -> Iterator[int]:
    while True:
        yield 1


def _self_reference() -> list[Any]:
    itself: list[Any] = []
    itself.append(itself)
    return itself


STRANGE: dict[str, object] = {
    "hostile": Hostile(),
    "hostile inside": [{"a": Hostile()}],
    "hostile name": {Hostile(): 1},
    "hostile mapping": HostileMapping(a=1),
    "cycle": _self_reference(),
    "generator": _endless(),
    "huge number": 10**6000,
    "nan": float("nan"),
    "infinity": float("-inf"),
    "enum": Colour.RED,
    "surrogate": "\ud800",
    "memoryview": memoryview(b"abc"),
    "class": Hostile,
    "none": None,
}


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
def test_a_strange_value_costs_no_record(written: Written, value: object, capsys: pytest.CaptureFixture[str]) -> None:
    log.info("one", extra={"value": value})
    log.info("two %s", value)
    log.info("three %d", value)
    log.info(value)
    log.error("five", exc_info=ValueError(value))
    log.info("six %s")
    log.info("seven %(a)s %(b)s", {"a": 1})
    log.info("eight", "superfluous")
    assert len(re.findall(r"one|two|three|five|six|seven|eight", written.text)) >= 7
    assert "could not be rendered" not in written.text
    assert capsys.readouterr().err == ""


def test_reserved_names_are_kept_apart(as_json: Written) -> None:
    with bind(level="bound"):
        log.info(
            "said", extra={"event": "mine", "ts": 1, "logger": "me", "exception": "x", "_record": "x", "_logger": 1}
        )
    assert as_json.last["event"] == "said"
    assert as_json.last["event_"] == "mine"
    assert as_json.last["level"] == "info"
    assert as_json.last["level_"] == "bound"


def test_a_record_is_bounded(written: Written) -> None:
    log.info("x" * 10**7, extra={"a": "y " * 10**6, "b": ["z " * 5000] * 10**5, "c": {str(i): i for i in range(10**4)}})
    assert len(written.text) < 40_000
    assert "more characters" in written.text


def test_a_gone_stream_is_nobodys_problem(capsys: pytest.CaptureFixture[str]) -> None:
    with configured("text"):
        stream = io.StringIO()
        configure(LogSettings(), stream)
        stream.close()
        log.info("token %s", "hunter2")
    assert capsys.readouterr().err == ""


def test_what_ends_a_thread_is_logged(as_json: Written) -> None:
    def run() -> None:
        raise RuntimeError("password=hunter2")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert as_json.last["event"] == "uncaught exception"
    assert "hunter2" not in as_json.text
