"""Output is cut only where a character and an escape sequence end, wherever the bytes were cut."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.terminal.history import History
from app.terminal.text import MAX_HELD, Splitter, is_answer, lines, without_questions

ST = "\x1b\\"  # does nothing where no text is to be ended
SEQUENCES = [
    "\x1b[31m", "\x1b[0m", "\x1b[?1049h", "\x1b[38;2;1;2;3m", "\x1b[4;5H", "\x1b]0;a title é\x07", "\x1b]8;;http://x\x1b\\",
    "\x1bP1$r0m\x1b\\", "\x1b(B", "\x1bM", "\x1b=", "\x1b[!p", "\x1b_Gi=1;AAAA\x1b\\", "\x1b[1 q",
]  # fmt: skip
TEXTS = st.lists(
    st.one_of(st.sampled_from(SEQUENCES), st.text(st.characters(exclude_characters="\x1b", codec="utf-8"), max_size=6)),
    max_size=20,
)

# Written apart from the code: all of a text, when nothing in it is unfinished.
WHOLE = re.compile(
    r"(?:[^\x1b]|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-OQ-WYZ\\`-~])*", re.DOTALL
)


@given(TEXTS, st.lists(st.integers(0, 300), max_size=30))
def test_pieces_are_whole_and_together_are_all(parts: list[str], cuts: list[int]) -> None:
    data = "".join(parts).encode()
    splitter, at, pieces = Splitter(), 0, []
    for cut in sorted({min(cut, len(data)) for cut in cuts} | {len(data)}):
        pieces.append(splitter.feed(data[at:cut]))
        at = cut
    pieces.append(splitter.flush())
    assert "".join(pieces) == "".join(parts)
    for piece in pieces:
        assert WHOLE.fullmatch(piece), piece


@pytest.mark.parametrize("text", ["日本é🙂", *SEQUENCES])
def test_every_cut(text: str) -> None:
    data = f"a{text}b".encode()
    for at in range(len(data)):
        splitter = Splitter()
        first, second = splitter.feed(data[:at]), splitter.feed(data[at:])
        assert first + second == f"a{text}b"
        assert WHOLE.fullmatch(first)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_what_is_no_text_is_shown_as_such_and_nothing_is_lost(data: bytes, cut: int) -> None:
    splitter = Splitter()
    shown = splitter.feed(data[:cut]) + splitter.feed(data[cut:]) + splitter.flush()
    assert shown == data.decode(errors="replace")


def test_a_sequence_without_an_end_is_not_held_for_ever() -> None:
    splitter = Splitter()
    piece = b"x" * 1000
    shown = splitter.feed(b"\x1b]52;c;") + "".join(splitter.feed(piece) for _ in range(MAX_HELD // 1000 + 2))
    assert len(shown) > MAX_HELD


@pytest.mark.parametrize(
    "question",
    [
        "\x1b[6n", "\x1b[5n", "\x1b[?6n", "\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[=c", "\x1b[>q", "\x1b[?2004$p",
        "\x1b[18t", "\x1b[?u", "\x1bZ", "\x05", "\x9b6n", "\x1b]10;?\x07", "\x1b]4;1;?\x1b\\", "\x1b]52;c;?\x07",
        "\x1bP+q544e\x1b\\", "\x1bP$qm\x1b\\", "\x1b[?1;1;0S", "\x1b[018t", "\x1b[1$w", "\x1b[&u", "\x1b[?4m",
        "\x1b[#R", "\x1b]21;foreground=?\x1b\\",
        "\x1b]1337;ReportCellSize\x07", "\x9a", "\x9fGa=q;AAAA\x9c", "\x1b]60\x07",
        "\x1b]52;c;aGk=\x07", "\x1b]9;notice\x07", "\x1b]777;notify;a;b\x1b\\",
    ],
)  # fmt: skip
def test_questions_are_taken_out(question: str) -> None:
    assert without_questions(f"a{question}b") == f"a{ST}b"


@pytest.mark.parametrize(
    "answer",
    [
        "\x1b[?64;1;2c", "\x1b[>41;330;0c", "\x1b[0n", "\x1b[?1n", "\x1b[12;40R", "\x1b[?12;40;1R", "\x1b[1;40R",
        "\x1b[?2004;1$y", "\x1b[4;2$y", "\x1b[8;24;80t", "\x1b[?0u", "\x1b[2;1;1;112;112;1;0x", "\x1b[?1;0;256S",
        "\x1b]10;rgb:ffff/ffff/ffff\x07", "\x1bP>|xterm(379)\x1b\\", "\x1b_Gi=31;OK\x1b\\", "\x1b[0n\x1b[12;40R",
    ],
)  # fmt: skip
def test_answers_are_known(answer: str) -> None:
    assert is_answer(answer.encode())


@pytest.mark.parametrize(
    "typed",
    [
        "", "a", "\r", "\x1b", "\x1b[A", "\x1bOR", "\x1b[R", "\x1b[1;2R", "\x1b[1;2S", "\x1b[1;5C", "\x1b[97;5u",
        "\x1b[3~", "\x1b]", "\x1bP",
        "\x1b[I", "\x1b[<0;10;10M", "\x1b[0na", "a\x1b[0n", "\x1b[200~\x1b[0n\x1b[201~",
    ],
)  # fmt: skip
def test_what_is_typed_is_no_answer(typed: str) -> None:
    assert not is_answer(typed.encode())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[\x1b[6n6n", f"\x1b[{ST}6n"),
        ("\x1b]11;\x1b[6n?\x07", f"\x1b]11;{ST}?"),
        ("\x1b]11;?\x1b[0m", f"{ST}\x1b[0m"),
    ],
)
def test_what_stands_around_a_question_does_not_become_one(text: str, shown: str) -> None:
    assert without_questions(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x07\x07b", "ab"),
        ("\x1b]0;title\x07a\x07b", "\x1b]0;title\x07ab"),
        ("\x1b]0;title\x1b\\a\x07b", "\x1b]0;title\x1b\\ab"),
        ("\x1b[1\x07;31m", "\x1b[1;31m"),
        ("\x1b[\x076n", ST),
        ("\x1b]11;?\x07", ST),
    ],
)
def test_bells_do_not_ring_again(text: str, shown: str) -> None:
    assert without_questions(text) == shown


@pytest.mark.parametrize("begun", ["\x1b]" + ";?" * 150_000, "\x9d\n" * 150_000, "\x90+q" * 100_000])
def test_many_texts_without_an_end_take_no_long(begun: str) -> None:
    before = time.process_time()
    without_questions(begun)
    assert time.process_time() - before < 2


@pytest.mark.parametrize("sequence", SEQUENCES[:7] + SEQUENCES[8:12])
def test_what_asks_nothing_stays(sequence: str) -> None:
    assert without_questions(sequence) == sequence


def test_lines_keep_their_colours_and_what_was_written_last() -> None:
    written = "a\r\n\x1b[31mred\x1b[0m\x1b[K\r\n10%\r20%\r\n\x1b]0;title\x07z"
    assert lines(written) == ["a", "\x1b[31mred\x1b[0m", "20%", "z"]


def test_lines_have_numbers_that_stay() -> None:
    history = History()
    for n in range(100_000):
        history.add(f"line {n}\r\n")
    page = history.page(None, 5)
    assert page.lines == [f"line {n}" for n in range(99_996, 100_000)] + [""]
    assert (page.first, page.total) == (99_996, 100_001)
    older = history.page(page.first, 10)
    assert older.lines == [f"line {n}" for n in range(99_986, 99_996)]
    assert older.first == 99_986
    assert page.oldest > 0
    assert history.page(page.oldest, 5).lines == []
    assert history.page(page.oldest + 1, 5).lines == [f"line {page.oldest}"]


def test_what_is_shown_again_begins_with_a_line_and_comes_in_pieces() -> None:
    history = History()
    for n in range(100_000):
        history.add(f"line {n}\r\n")
    _, *pieces = history.again()
    assert len(pieces) > 1
    assert all(re.match(r"line \d+\r\n", piece) and piece.endswith("\r\n") for piece in pieces)
