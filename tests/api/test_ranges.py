from __future__ import annotations

import pytest

from app.api.ranges import Span, Unsatisfiable, is_known, span_of

SIZE, TAG = 100, '"tag"'


@pytest.mark.parametrize(
    ("wanted", "span"),
    [
        (None, None),
        ("bytes=0-7", Span(0, 8)),
        ("bytes=0-0", Span(0, 1)),
        ("bytes=90-", Span(90, 100)),
        ("bytes=90-99", Span(90, 100)),
        ("bytes=90-5000", Span(90, 100)),
        ("bytes=0-", Span(0, 100)),
        ("bytes=-1", Span(99, 100)),
        ("bytes=-500", Span(0, 100)),
        ("Bytes = 1 - 2", Span(1, 3)),
        # not ranges of bytes: ignored, as RFC 9110 has it
        ("bytes=7-3", None),
        ("bytes=-", None),
        ("bytes=", None),
        ("bytes=a-b", None),
        ("bytes=1", None),
        ("bytes=0-1,5-6", None),
        ("bytes=-1-2", None),
        ("lines=0-7", None),
        ("bytes=0x1-2", None),
        ("bytes=0-" + "9" * 30, None),
        ("bytes=０-７", None),
        # as many blanks as a head has room for: to be told at once
        (f"bytes{' ' * 15_000}={' ' * 15_000}-{' ' * 15_000}x", None),
    ],
)
def test_what_is_asked_for(wanted: str | None, span: Span | None) -> None:
    assert span_of(wanted, None, SIZE, TAG) == span


@pytest.mark.parametrize(
    ("wanted", "size"),
    [
        ("bytes=100-", 100),
        ("bytes=100-200", 100),
        ("bytes=-0", 100),
        ("bytes=0-", 0),
        ("bytes=-5", 0),
        ("bytes=0-0", 0),
    ],
)
def test_what_cannot_be_had(wanted: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        span_of(wanted, None, size, TAG)


@pytest.mark.parametrize(
    ("if_range", "span"),
    [
        (TAG, Span(0, 8)),
        (f" {TAG} ", Span(0, 8)),
        ('"other"', None),
        (f"W/{TAG}", None),
        ("Mon, 30 Nov 2026 21:00:00 GMT", None),
    ],
)
def test_a_range_of_what_the_caller_has_a_part_of(if_range: str, span: Span | None) -> None:
    assert span_of("bytes=0-7", if_range, SIZE, TAG) == span


@pytest.mark.parametrize(
    ("header", "known"),
    [(None, False), ("", False), (TAG, True), (f'"a", W/{TAG}', True), ("*", True), ('"tagged"', False)],
)
def test_what_the_caller_has_already(header: str | None, known: bool) -> None:
    assert is_known(header, TAG) is known
