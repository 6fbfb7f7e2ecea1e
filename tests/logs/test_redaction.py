"""Trying to get a secret past the log. Every attempt is made through real loggers and read from the real handler."""

from __future__ import annotations

import base64
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.logs import register_secret
from app.logs.names import is_secret
from app.logs.redaction import Cleaner, clean_text

from .conftest import Written, configured

log = logging.getLogger("talaria.test")

SECRET = "hunter2-Zq81"  # nothing about it gives it away
JWT = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsxIn0.eyJzdWIiOiJkZXYtMSIsImV4cCI6MX0.c2lnbmF0dXJlLW9mLTY0LWJ5dGVz"
OPERATOR = "op_k3-VerySecret+operator/token=="


@dataclass
class Auth:
    pairing_code: str
    session_token: str


class Sly:
    """Looks harmless, prints otherwise."""

    def __repr__(self) -> str:
        return f"Sly(api_key={SECRET!r})"


MESSAGES = {
    "equals": f"token={SECRET}",
    "colon": f"password: {SECRET}",
    "phrase": f"Passphrase: correct horse {SECRET} staple",
    "query": f"GET https://h/x?a=1&access_token={SECRET}&b=2",
    "encoded name": f"GET /x?access%5Ftoken={SECRET}",
    "encoded query in a query": f"GET /login?next=%2Fx%3Ftoken%3D{SECRET}",
    "encoded twice": f"GET /login?next=%252Fx%253Ftoken%253D{SECRET}",
    "userinfo": f"postgres://me:{SECRET}@db/x",
    "userinfo with an at sign": f"https://me:p@{SECRET}@db/x",
    "bearer": f"sent Bearer {SECRET}",
    "bearer in lower case": f"sent bearer  {SECRET}!",
    "basic": "Authorization: Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode() + f" {SECRET}",
    "cookie line": f"Cookie: a=1; sid={SECRET}; b=2",
    "set-cookie": f"set-cookie: sid={SECRET}; Path=/",
    "header block": f"GET / HTTP/1.1\r\nHost: h\r\nX-Hermes-Session-Token: {SECRET}\r\n\r\n",
    "json": json.dumps({"a": {"refreshToken": SECRET}}),
    "json in json": json.dumps({"body": json.dumps({"client_secret": f'a"{SECRET}'})}),
    "json three deep": json.dumps(json.dumps(json.dumps({"passwd": SECRET}))),
    "pretty json": json.dumps({"tickets": [{"x": "y"}, SECRET], "z": 1}, indent=2),
    "repr of a dict": f"{ {'Authorization': 'Digest ' + SECRET} }",
    "repr of a header list": f"{[(b'host', b'h'), (b'cookie', SECRET.encode())]}",
    "repr of a dataclass": f"{Auth('x', SECRET)}",
    "nested value": f"{ {'credentials': {'inner': {'deep': 1}, 'last': SECRET}} }",
    "flag": f"talaria --api-key {SECRET} serve",
    "environment": f"TALARIA_HERMES_API_KEY={SECRET}",
    "xml": f"<password>{SECRET}</password>",
    "ruby": f"token => '{SECRET}'",
    "harmless pair before": f"error: token={SECRET}",
    "control characters around": f"\x1b[31mtoken=\x1b[0m{SECRET}",
    "private key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    "private key cut off": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\nmore",
    "code in a fragment": f"https://h/pair#code={SECRET}",
    "a file's token in a path": f"GET /media/{SECRET}-0123456789",
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_message_shows_no_secret(written: Written, message: str) -> None:
    log.info(message)
    log.info("%s", message)
    log.info("about %s and %r", message, message)
    log.info("with a field", extra={"note": message, "bytes": message.encode(), "deep": [{"a": (message,)}]})
    log.info("bound to a name %(note)s", {"note": message})
    logging.getLogger("uvicorn.error").error(message)
    logging.getLogger("sqlalchemy.engine").error("SQL %s", message)
    logging.getLogger(f"somebody.{message}").error("from a logger with a telling name")
    assert SECRET not in written.text
    assert "Secret" not in written.text.replace("client_secret", "")
    assert "[redacted]" in written.text


FIELDS: dict[str, dict[str, Any]] = {
    "by name": {"session_token": SECRET},
    "in camel case": {"refreshToken": SECRET},
    "as a header": {"X-Hermes-Session-Token": SECRET},
    "a number": {"password": 81_724_519},
    "bytes": {"api_key": SECRET.encode()},
    "a list under the name": {"cookies": ["a", {"b": SECRET}]},
    "nested": {"a": {"b": [{"c": {"Proxy-Authorization": SECRET}}]}},
    "pairs": {"headers": [(b"host", b"h"), (b"authorization", SECRET.encode())]},
    "a pair in a list": {"headers": [["Set-Cookie", SECRET]]},
    "name and value": {"headers": [{"name": "authorization", "value": SECRET}]},
    "key and value": {"entry": {"key": "otp", "value": SECRET}},
    "another kind of mapping": {"a": MappingProxyType(OrderedDict(secret=SECRET))},
    "bytes as a name": {"a": {b"cookie": SECRET}},
    "a set": {"a": {f"token={SECRET}"}},
    "a secret as a name": {"a": {f"token={SECRET}": 1}},
    "an object": {"a": Sly()},
    "a dataclass": {"a": Auth(pairing_code=SECRET, session_token=SECRET)},
    "an exception": {"a": ValueError(f"token={SECRET}")},
    "a telling name cut short": {"a": {"x" * 300 + "_token": SECRET}},
    "a pairing code": {"code": "ABCD1234"},
    "a pairing code in lower case": {"code": "abcd1234", "pairing_code": "abcdefgh"},
    "six digits": {"code": 817_245},
    "an api key": {"key": "AIzaSyD-81724519-x"},
}


@pytest.mark.parametrize("extra", FIELDS.values(), ids=FIELDS)
def test_a_field_shows_no_secret(written: Written, extra: dict[str, Any]) -> None:
    log.info("said", extra=extra)
    log.info("said %s", extra)
    log.info("said %s %s", "and", [extra])
    log.info(extra)
    for secret in (SECRET, "81724519", "ABCD1234", "abcd1234", "abcdefgh", "817245"):
        assert secret not in written.text


def test_what_is_not_secret_is_shown(as_json: Written) -> None:
    fields = {
        "code": "frame_invalid",
        "status_code": 404,
        "closeCode": 4401,
        "exit_code": 1,
        "input_tokens": 512,
        "token_prefix": "0a1b2c3d",
        "key": "chat.send",
        "footprint": "small",
        "device": "dev-84c1",
        "trusted": None,
        "has_token": True,
        "url": "https://home.example:8767/ws?v=1",
        "ratio": 0.5,
    }
    log.info("closed with code: 4401 (exit code 0), error code: frame_invalid", extra=fields)
    assert fields.items() <= as_json.last.items()
    assert as_json.last["event"] == "closed with code: 4401 (exit code 0), error code: frame_invalid"


@pytest.mark.parametrize("text", [JWT, f"sub {JWT}.", f"/ws/{JWT}", f"{JWT.replace('.', '%2E')}", f"('{JWT}',)"])
def test_a_jwt_is_known_by_its_looks(written: Written, text: str) -> None:
    log.info(text, extra={"a": text})
    for part in JWT.split("."):
        assert part[4:] not in written.text


@pytest.mark.parametrize("sentence", ["wrong pairing code ABCD1234", "Code: ABCD1234", "the code (ABCD1234) is used"])
def test_a_pairing_code_in_a_sentence(written: Written, sentence: str) -> None:
    log.info(sentence)
    assert "ABCD1234" not in written.text


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "inside a word": lambda s: f"xx{s}yy",
    "url-encoded": lambda s: quote(s, safe=""),
    "form-encoded": quote_plus,
    "url-encoded in lower case": lambda s: quote(s, safe="").lower(),
    "url-encoded twice": lambda s: quote(quote(s, safe=""), safe=""),
    "every byte url-encoded": lambda s: "".join(f"%{b:02x}" for b in s.encode()),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 of user and password": lambda s: base64.b64encode(f"hermes:{s}".encode()).decode(),
    "base64 of a longer text": lambda s: base64.urlsafe_b64encode(f"ab{s}xyz".encode()).decode(),
    "hex": lambda s: s.encode().hex(),
    "upper case": str.upper,
    "json": lambda s: json.dumps(f'"{s}"'),
    "bytes": lambda s: str(s.encode()),
}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_a_known_secret_is_replaced_however_it_is_spelled(written: Written, spell: Callable[[str], str]) -> None:
    register_secret(OPERATOR)
    said = spell(OPERATOR)
    middle = said[len(said) // 3 : -len(said) // 3 + 1]
    log.info("it is %s", said)
    log.info(f"it is {said}", extra={"note": said, said: 1})
    try:
        raise RuntimeError(said)
    except RuntimeError:
        log.exception("failed")
    assert middle not in written.text
    assert said not in written.text


@given(st.text(max_size=3000), st.text(max_size=3000), st.integers(1900, 2200))
def test_cutting_a_long_text_never_leaves_a_piece_of_a_known_secret(before: str, after: str, pad: int) -> None:
    secret = "my own: some 40 letters & also blanks -!"
    with configured("text"):
        register_secret(secret)
        for text in (before + secret + after, "x " * (pad // 2) + secret + after):
            shown = clean_text(text) + str(Cleaner().clean(text.encode()))
            assert not any(secret[i : i + 8] in shown for i in range(len(secret) - 8))


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=20))
names = st.one_of(st.text(max_size=10), st.sampled_from(["a", "b", b"c"]), st.integers())
nests = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(names, inner, max_size=4)
    ),
    max_leaves=12,
)


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except TypeError:  # bytes as a name
        return repr(value)


hiding_places = st.recursive(
    st.one_of(
        st.sampled_from(["token", "X-Api-Key", "refreshToken", "SECRET", b"cookie", "my password", "session.key"]).map(
            lambda name: {name: SECRET}
        ),
        st.sampled_from([(b"authorization", SECRET.encode()), ["cookie", SECRET], f"token={SECRET}", JWT + SECRET]),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, nests).map(list),
        st.tuples(names, inner).map(lambda pair: {pair[0]: pair[1]}),
        st.tuples(inner, nests, nests),
        inner.map(_as_json),
        inner.map(repr),
        inner.map(lambda x: str(x).encode()),
        inner.map(lambda x: quote(str(x))),
    ),
    max_leaves=6,
)


@given(hiding_places)
def test_no_nesting_hides_a_secret(hidden: Any) -> None:
    for log_format in ("text", "json"):
        with configured(log_format) as output:
            log.info("a field", extra={"field": hidden})
            log.info("an argument %s", hidden)
            log.info(f"a part of the message {hidden}")
            log.error("an exception", exc_info=ValueError(hidden))
        assert SECRET not in output.text


@given(st.text(max_size=60))
def test_names_that_hold_a_telling_word_are_secret(text: str) -> None:
    for name in (f"{text}_password", f"secret{text}", f"x-{text}-authorization"):
        assert is_secret(name, "x")


@given(st.text(max_size=400))
def test_cleaning_twice_changes_nothing_secret(text: str) -> None:
    once = clean_text(f"{text} token={SECRET} {text}")
    assert SECRET not in once
    assert SECRET not in clean_text(once)
