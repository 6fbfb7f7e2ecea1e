from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import Misconfigured
from app.pairing.codes import ALPHABET, CodeHash, new_code, normalise
from app.pairing.errors import PairingCodeInvalid
from app.pairing.link import pair_link


def test_a_code_is_eight_characters_that_a_phone_can_type() -> None:
    codes = {new_code() for _ in range(500)}
    assert len(codes) == 500
    assert all(len(code) == 8 and set(code) <= set(ALPHABET) for code in codes)
    assert set("".join(codes)) == set(ALPHABET)


@pytest.mark.parametrize("text", ["ABCD1234", "abcd1234", " abcd-1234 ", "ab cd 12 34", "-A-B-C-D-1-2-3-4-"])
def test_it_may_be_typed_as_people_type(text: str) -> None:
    assert normalise(text) == "ABCD1234"


@pytest.mark.parametrize(
    "text",
    ["", "ABC12", "A" * 17, "ABC12!", "ABCD_1234", "ABCDÉ123", "ABCDſ123", "ABCD１２３４", "ABCD\n1234", "ßßßßßß"],
)
def test_what_is_no_code_is_refused(text: str) -> None:
    with pytest.raises(PairingCodeInvalid):
        normalise(text)


@given(
    st.text(ALPHABET, min_size=6, max_size=16),
    st.lists(st.tuples(st.integers(0, 16), st.sampled_from(" -")), max_size=8),
    st.randoms(use_true_random=False),
)
def test_case_spaces_and_dashes_change_nothing(code: str, noise: list[tuple[int, str]], random) -> None:  # type: ignore[no-untyped-def]
    typed = "".join(random.choice((c.lower(), c)) for c in code)
    for place, mark in noise:
        typed = typed[:place] + mark + typed[place:]
    assert normalise(typed) == code


@given(st.text(max_size=40))
def test_anything_is_a_code_or_refused(text: str) -> None:
    try:
        code = normalise(text)
    except PairingCodeInvalid:
        return
    assert 6 <= len(code) <= 16
    assert set(code) <= set(ALPHABET)
    assert normalise(code) == code


def test_the_stored_form_depends_on_a_key_that_is_made_once(tmp_path: Path) -> None:
    stored = CodeHash.load(tmp_path)("ABCD1234")
    assert CodeHash.load(tmp_path)("ABCD1234") == stored
    assert CodeHash.load(tmp_path / "other")("ABCD1234") != stored
    assert (tmp_path / "pairing-key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"00", b"z" * 64])
def test_a_key_file_that_is_none_stops_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pairing-key").write_bytes(content)
    with pytest.raises(Misconfigured, match="pairing-key holds no key"):
        CodeHash.load(tmp_path)


def test_the_link_carries_the_code_where_no_server_sees_it() -> None:
    assert pair_link("https://home.ts.net", 8767, "ABCD1234", "f") == "https://home.ts.net/pair#code=ABCD1234&fp=f"
    assert pair_link(None, 8767, "ABCD1234", "f") == "http://127.0.0.1:8767/pair#code=ABCD1234&fp=f"
