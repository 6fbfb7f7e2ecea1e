from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.wire.sse import EventTooLong, SseSplitter


def split(*chunks: bytes) -> list[tuple[str, bytes]]:
    splitter = SseSplitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"event: a\ndata: {}\n\n", [("a", b"{}")]),
        (b"event:a\ndata:{}\n\n", [("a", b"{}")]),
        (b"data: x\n\n", [("message", b"x")]),
        (b"data: [DONE]\n\n", [("message", b"[DONE]")]),
        (b"data: x\nevent: late\n\n", [("late", b"x")]),
        (b"event: a\ndata: 1\ndata: 2\ndata:\n\n", [("a", b"1\n2\n")]),
        (b"data:  two spaces\n\n", [("message", b" two spaces")]),
        (b": keepalive\n\nevent: a\ndata: 1\n\n", [("a", b"1")]),
        (b": c\nevent: a\n: c\ndata: 1\n: c\n\n", [("a", b"1")]),
        (b"event: a\n\ndata: 1\n\n", [("message", b"1")]),
        (b"id: 7\nretry: 10\nnonsense\ndata: 1\n\n", [("message", b"1")]),
        (b"\n\n\nevent: a\ndata: 1\n\n\n\nevent: b\ndata: 2\n\n", [("a", b"1"), ("b", b"2")]),
        (b"event: a\r\ndata: 1\r\n\r\nevent: b\r\ndata: 2\r\n\r\n", [("a", b"1"), ("b", b"2")]),
        (b"event: a\rdata: 1\r\revent: b\rdata: 2\r\r", [("a", b"1"), ("b", b"2")]),
        (b"event: a\ndata: 1\r\n\nevent: b\rdata: 2\n\r\n", [("a", b"1"), ("b", b"2")]),
        (b"\xef\xbb\xbfevent: a\ndata: 1\n\n", [("a", b"1")]),
        (b"data\n\n", [("message", b"")]),
        (b"event: a\ndata: cut off", []),
        (b"event: a\ndata: cut off\n", []),
    ],
)
def test_the_grammar_in_one_piece_and_byte_by_byte(stream: bytes, events: list[tuple[str, bytes]]) -> None:
    assert split(stream) == events
    assert split(*(stream[i : i + 1] for i in range(len(stream)))) == events


@given(
    events=st.lists(st.tuples(st.sampled_from(["a", "assistant.delta", "ü"]), st.text(min_size=1, max_size=20))),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 400)),
)
def test_no_cut_changes_anything(events: list[tuple[str, str]], newline: str, cuts: list[int]) -> None:
    events = [(name, data.replace("\r", "").replace("\n", "") or "x") for name, data in events]
    stream = "".join(f"event: {name}{newline}data: {data}{newline}{newline}" for name, data in events).encode()
    edges = [0, *sorted(min(c, len(stream)) for c in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert split(*chunks) == [(name, data.encode()) for name, data in events]


def test_a_character_cut_in_the_middle_is_whole_again() -> None:
    stream = "data: 日本語 🎉\n\n".encode()
    assert split(*(stream[i : i + 7] for i in range(0, len(stream), 7))) == [("message", "日本語 🎉".encode())]


def test_an_event_without_end_is_refused_and_not_kept() -> None:
    splitter = SseSplitter(max_event=1000)
    splitter.feed(b"data: " + b"x" * 900)
    with pytest.raises(EventTooLong):
        splitter.feed(b"x" * 200)


def test_the_bound_counts_one_event_not_the_stream() -> None:
    splitter = SseSplitter(max_event=100)
    assert sum(len(splitter.feed(b"data: " + b"x" * 80 + b"\n\n")) for _ in range(100)) == 100


def test_a_long_event_in_small_pieces_costs_linear_time() -> None:
    """Joining what is pending for every piece would copy 2 GB here."""
    splitter, piece = SseSplitter(), b"x" * 1000
    began = time.process_time()
    splitter.feed(b"data: ")
    for _ in range(2000):
        splitter.feed(piece)
    assert splitter.feed(b"\n\n") == [("message", piece * 2000)]
    assert time.process_time() - began < 0.5  # of this process's own time, however busy the machine is
