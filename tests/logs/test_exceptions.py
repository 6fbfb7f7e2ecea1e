"""Exceptions carry what they were raised with: their text, causes, notes, groups and stacks are cleaned too."""

from __future__ import annotations

import logging

import pytest

from app.logs import register_secret

from .conftest import Written

log = logging.getLogger("talaria.test")

SECRET = "hunter2-Zq81"


def fail(exc: BaseException) -> None:
    local_token = SECRET  # noqa: F841 - tracebacks that show local names would show it
    raise exc


def secret_error(kind: type[Exception] = ValueError) -> Exception:
    return kind({"password": SECRET}, f"https://u:{SECRET}@h/?token={SECRET}")


def chained() -> Exception:
    try:
        try:
            fail(secret_error(KeyError))
        except KeyError:
            fail(secret_error())
    except ValueError as exc:
        outer = RuntimeError("outer")
        outer.__cause__ = exc
        return outer
    raise AssertionError


def noted() -> Exception:
    exc = RuntimeError("noted")
    exc.add_note(f"Authorization: Bearer {SECRET}")
    return exc


def grouped() -> Exception:
    return ExceptionGroup(f"token={SECRET}", [chained(), ExceptionGroup("inner", [noted(), secret_error()])])


@pytest.mark.parametrize("make", [secret_error, chained, noted, grouped])
def test_an_exception_shows_no_secret(written: Written, make: object) -> None:
    assert callable(make)
    try:
        fail(make())
    except Exception as exc:
        log.exception("failed with %s", exc)
        log.error("failed", exc_info=exc, stack_info=True, extra={"exc": exc, "token": exc})
        logging.getLogger("asyncio").error("Task exception was never retrieved: %r", exc, exc_info=exc)
    assert SECRET not in written.text
    assert "in fail" in written.text
    assert type(make()).__name__ in written.text


def test_the_cause_is_told_first(as_json: Written) -> None:
    log.error("failed", exc_info=chained())
    shown = as_json.last["exception"]
    assert shown.index("KeyError") < shown.index("ValueError") < shown.index("RuntimeError: outer")


def test_a_secret_in_a_source_line_of_a_traceback(written: Written) -> None:
    register_secret("in-the-source-line")
    try:
        raise ValueError("in-the-source-line")
    except ValueError:
        log.exception("failed", stack_info=True)
    assert "in-the-source-line" not in written.text


def test_a_text_another_handler_cached_is_not_trusted(written: Written) -> None:
    record = log.makeRecord(log.name, logging.ERROR, __file__, 1, "failed", (), None)
    record.exc_text = f"Traceback: {SECRET}"
    logging.getLogger().handle(record)
    assert SECRET not in written.text


def test_a_long_chain_is_bounded(written: Written) -> None:
    exc = Exception("first")
    for depth in range(2000):
        later = Exception("x" * 10_000 + str(depth))
        later.__cause__, exc = exc, later
    log.error("failed", exc_info=exc)
    assert len(written.text) < 30_000


def test_a_chain_that_bites_its_tail(written: Written) -> None:
    a, b = ValueError("a"), ValueError("b")
    a.__context__, b.__context__ = b, a
    log.error("failed", exc_info=a)
    assert "ValueError: b" in written.text
