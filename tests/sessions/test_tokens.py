from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sessions import tokens
from app.sessions.errors import TokenRejected
from app.sessions.keys import SessionKeys

NOW = 1_800_000_000.0
CLAIMS: dict[str, Any] = {
    "iss": "talaria", "aud": "talaria-session", "sub": "phone", "sid": "a" * 32, "iat": int(NOW),
}  # fmt: skip


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> SessionKeys:
    return SessionKeys.load(tmp_path_factory.mktemp("keys"))


def signed(keys: SessionKeys, claims: dict[str, Any] | None = None, **header: Any) -> str:
    header = {"kid": keys.signing.kid, "typ": tokens.TYPE} | header
    return jwt.encode(CLAIMS if claims is None else claims, keys.signing.private, algorithm="EdDSA", headers=header)


def b64(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_what_is_signed_is_read(keys: SessionKeys) -> None:
    token = tokens.sign(keys.signing, session_id="a" * 32, device_id="phone", now=NOW)
    assert tokens.read(keys, token) == ("a" * 32, "phone", 0)
    assert token.isascii()
    assert token.isprintable()
    assert jwt.get_unverified_header(token) == {"alg": "EdDSA", "kid": keys.signing.kid, "typ": "talaria-session+jwt"}
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims == CLAIMS
    assert not {"exp", "nbf"} & set(claims)


def test_the_clock_that_jumped_does_not_matter(keys: SessionKeys) -> None:
    for claims in (CLAIMS | {"iat": int(NOW) * 3}, CLAIMS | {"exp": 1}, CLAIMS | {"nbf": int(NOW) * 3}):
        assert tokens.read(keys, signed(keys, claims)) == ("a" * 32, "phone", 0)


def test_a_token_of_another_relay_is_none_of_ours(keys: SessionKeys, tmp_path: Path) -> None:
    other = SessionKeys.load(tmp_path)
    with pytest.raises(TokenRejected):
        tokens.read(keys, tokens.sign(other.signing, session_id="a" * 32, device_id="phone", now=NOW))
    with pytest.raises(TokenRejected):  # even if it names our key
        tokens.read(keys, signed(other, kid=keys.signing.kid))


def test_an_algorithm_is_never_the_tokens_choice(keys: SessionKeys) -> None:
    header = {"kid": keys.signing.kid, "typ": tokens.TYPE}
    none = f"{b64(header | {'alg': 'none'})}.{b64(CLAIMS)}."
    public = keys.public[keys.signing.kid].public_bytes_raw()
    forged = [none, none.rstrip("."), none + b64(b"x" * 64)]
    for secret in (public, public.hex().encode(), b64(public).encode()):
        forged.append(jwt.encode(CLAIMS, secret, algorithm="HS256", headers=header))
        # the public key as the secret of an HMAC, with a header that claims our algorithm
        _, body, mac = forged[-1].split(".")
        forged.append(".".join([b64(header | {"alg": "EdDSA"}), body, mac]))
    for token in forged:
        with pytest.raises(TokenRejected):
            tokens.read(keys, token)


@pytest.mark.parametrize(
    "header",
    [
        {"kid": "0" * 16}, {"kid": ""}, {"typ": "JWT"}, {"typ": "talaria-ticket+jwt"}, {"typ": "TALARIA-SESSION+JWT"},
        {"crit": ["x"], "x": 1}, {"jku": "https://evil.example/keys"},
    ],
)  # fmt: skip
def test_another_key_or_type_is_refused(keys: SessionKeys, header: dict[str, Any]) -> None:
    if "jku" in header:  # ignored: nothing is ever fetched
        assert tokens.read(keys, signed(keys, **header))
        return
    with pytest.raises(TokenRejected):
        tokens.read(keys, signed(keys, **header))


def test_a_header_without_kid_or_type_is_refused(keys: SessionKeys) -> None:
    for header in (
        {"typ": tokens.TYPE},
        {"kid": keys.signing.kid},
        {"typ": None, "kid": keys.signing.kid},
        {"typ": tokens.TYPE, "kid": 7},
    ):
        body = f"{b64(header | {'alg': 'EdDSA'})}.{b64(CLAIMS)}"
        token = f"{body}.{b64(keys.signing.private.sign(body.encode()))}"
        with pytest.raises(TokenRejected):
            tokens.read(keys, token)


@pytest.mark.parametrize(
    "change",
    [
        {"aud": "other"}, {"aud": ["other"]}, {"aud": None}, {"iss": "other"}, {"iss": None}, {"sub": None},
        {"sid": None}, {"iat": None}, {"sid": 7}, {"sid": ["a"]}, {"sub": 7},
    ],
)  # fmt: skip
def test_other_claims_are_refused(keys: SessionKeys, change: dict[str, Any]) -> None:
    claims = {name: value for name, value in (CLAIMS | change).items() if value is not None}
    body = f"{b64({'alg': 'EdDSA', 'kid': keys.signing.kid, 'typ': tokens.TYPE})}.{b64(claims)}"
    with pytest.raises(TokenRejected):
        tokens.read(keys, f"{body}.{b64(keys.signing.private.sign(body.encode()))}")


def test_a_token_with_any_bit_changed_is_refused(keys: SessionKeys) -> None:
    token = tokens.sign(keys.signing, session_id="a" * 32, device_id="phone", now=NOW)
    head, body, signature = token.split(".")
    tampered = [
        ".".join([head, b64(CLAIMS | {"sid": "b" * 32}), signature]),
        ".".join([head, b64(CLAIMS | {"sub": "other"}), signature]),
        ".".join([head, body, signature[:-2]]),
        ".".join([head, body, ""]),
        ".".join([head, body]),
        token + ".",
        token[:40],
    ]
    for place in range(0, len(token), 7):
        swapped = "A" if token[place] != "A" else "B"
        tampered.append(token[:place] + swapped + token[place + 1 :])
    for other in tampered:
        with pytest.raises(TokenRejected):
            tokens.read(keys, other)


def test_a_long_one_costs_no_cryptography(keys: SessionKeys) -> None:
    with pytest.raises(TokenRejected) as caught:
        tokens.read(keys, "a" * (tokens.MAX_LENGTH + 1))
    assert caught.value.detail == "too long"


@given(st.text(max_size=200) | st.from_regex(r"[A-Za-z0-9_-]{0,60}\.[A-Za-z0-9_-]{0,60}\.[A-Za-z0-9_-]{0,60}"))
def test_anything_else_is_refused_and_nothing_more(keys: SessionKeys, text: str) -> None:
    with pytest.raises(TokenRejected):
        tokens.read(keys, text)


@given(
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8), max_size=4),
    st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers()), st.dictionaries(st.text(), st.integers())),
)
def test_any_json_in_a_token_is_refused_and_nothing_more(
    keys: SessionKeys, header: dict[str, Any], claims: Any
) -> None:
    body = f"{b64({'alg': 'EdDSA', 'kid': keys.signing.kid, 'typ': tokens.TYPE} | header)}.{b64(claims)}"
    with pytest.raises(TokenRejected):
        tokens.read(keys, f"{body}.{b64(keys.signing.private.sign(body.encode()))}")
