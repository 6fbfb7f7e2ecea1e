from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.errors import Misconfigured
from app.sessions.keys import SessionKeys
from app.sessions.operator import OperatorToken


def test_the_keys_are_made_once_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    first, again = SessionKeys.load(tmp_path), SessionKeys.load(tmp_path)
    assert first.signing.kid == again.signing.kid
    path = tmp_path / "session-keys.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # no draft is left


def test_of_several_starters_one_wins(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        kids = {keys.signing.kid for keys in pool.map(lambda _: SessionKeys.load(tmp_path), range(8))}
    assert len(kids) == 1


def test_a_mode_that_others_can_read_is_tightened(tmp_path: Path) -> None:
    SessionKeys.load(tmp_path)
    (tmp_path / "session-keys.json").chmod(0o644)
    SessionKeys.load(tmp_path)
    assert (tmp_path / "session-keys.json").stat().st_mode & 0o777 == 0o600


def test_with_several_keys_the_highest_number_signs_and_all_verify(tmp_path: Path) -> None:
    old = SessionKeys.load(tmp_path)
    other = tmp_path / "other"
    new = SessionKeys.load(other)
    merged = json.loads((tmp_path / "session-keys.json").read_text())
    (added,) = json.loads((other / "session-keys.json").read_text()).values()
    merged[new.signing.kid] = added | {"number": 2, "note": "by hand"}
    (tmp_path / "session-keys.json").write_text(json.dumps(merged))
    keys = SessionKeys.load(tmp_path)
    assert keys.signing.kid == new.signing.kid
    assert set(keys.public) == {old.signing.kid, new.signing.kid}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no json", b"[]", b"{}", b"null", b'{"a": 1}', b'{"": {"number": 1, "key": ""}}',
        b'{"a": {"number": 1}}', b'{"a": {"key": "AAAA"}}', b'{"a": {"number": true, "key": "AAAA"}}',
        b'{"a": {"number": 1, "key": "AAAA"}}', b'{"a": {"number": 1, "key": "!!"}}', b'{"a": {"number": 1, "key": 5}}',
        b"\xff\xfe",
    ],
)  # fmt: skip
def test_a_key_file_that_is_none_stops_the_start_with_a_way_out(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "session-keys.json"
    path.write_bytes(content)
    with pytest.raises(Misconfigured) as caught:
        SessionKeys.load(tmp_path)
    assert str(path) in caught.value.message
    assert "pair every device again" in caught.value.message
    assert path.read_bytes() == content


def test_the_error_does_not_repeat_the_key(tmp_path: Path) -> None:
    SessionKeys.load(tmp_path)
    path = tmp_path / "session-keys.json"
    ((kid, entry),) = json.loads(path.read_text()).items()
    path.write_text(json.dumps({kid: {"number": 1, "key": entry["key"][:-8]}}))
    with pytest.raises(Misconfigured) as caught:
        SessionKeys.load(tmp_path)
    assert entry["key"][:16] not in str(caught.value)


def test_the_operator_token_is_made_once_and_compared_whole(tmp_path: Path) -> None:
    operator = OperatorToken.load(tmp_path)
    token = operator.read()
    assert OperatorToken.load(tmp_path).read() == token
    assert (tmp_path / "operator-token").stat().st_mode & 0o777 == 0o600
    assert operator.matches(token)
    for wrong in ("", token[:-1], token + "x", token.swapcase(), "ü", "\udcff"):
        assert not operator.matches(wrong)


@pytest.mark.parametrize("content", ["", "\n", "short", "two words " * 8, "x" * 40 + "\n" + "y" * 40, "ü" * 40])
def test_an_operator_token_that_anybody_could_guess_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "operator-token").write_text(content)
    with pytest.raises(Misconfigured, match="operator-token"):
        OperatorToken.load(tmp_path)


def test_what_cannot_be_read_names_path_and_user(tmp_path: Path) -> None:
    (tmp_path / "operator-token").mkdir()
    with pytest.raises(Misconfigured, match=r"operator-token cannot be read or made as uid \d+: "):
        OperatorToken.load(tmp_path)
