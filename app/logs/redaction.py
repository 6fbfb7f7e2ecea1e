"""What a log may not hold, taken out of whatever somebody logs.

Two nets: values whose *name* says that they are secret, in dicts, pairs and header lists as in running text
(`token=…`, `'authorization': …`, `?code=…`), and values that give themselves away (`Bearer …`, JWTs, private keys,
and the secrets that `register_secret` was told of). Nothing here raises, and the work per record is bounded.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Set
from itertools import islice
from typing import TypeAlias
from urllib.parse import quote, quote_plus, unquote

from app.logs.names import is_secret
from app.logs.pairs import REDACTED, redact_pairs

Clean: TypeAlias = "str | int | float | bool | list[Clean] | dict[str, Clean] | None"

MAX_TEXT = 2048  # characters of one value: a log line is read by people
MAX_TOTAL = 16384  # characters of one record's fields
MAX_ITEMS = 50  # of one container
MAX_NODES = 300  # values of one record
MAX_DEPTH = 8
MAX_SECRETS = 32  # a relay has a handful; the oldest is forgotten
MIN_SECRET = 6  # shorter ones would black out half of every line

_MARKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.S), REDACTED),
    (re.compile(r"""://[^\s/?#"'<>]*@"""), f"://{REDACTED}@"),
    (re.compile(r"""(?i)\b(bearer)\b(?:[\s:=+]|\\[rnt])+["']?[^\s"',;<>]+"""), rf"\1 {REDACTED}"),
    (re.compile(r"\bBasic\s+[A-Za-z0-9+/]{6,}={0,2}"), f"Basic {REDACTED}"),
    (re.compile(r"ey[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)*|eyJ[A-Za-z0-9_-]{12,}"), REDACTED),
    (
        re.compile(
            r"\b(?:[spr]k-[\w-]{16,}|gh[pousr]_\w{20,}|xox[a-z]-[\w-]{10,}|AKIA[A-Z0-9]{16}|tk_\w{20,}|talaria-[a-z]{2,8}-[\w-]{20,})"
        ),
        REDACTED,
    ),
    (re.compile(r"(/media/)[\w-]{20,}"), rf"\1{REDACTED}"),  # a path that is a token
    # "pairing code ABCD1234", said in a sentence
    (
        re.compile(
            r"((?<!error )(?<!close )(?<!status )(?<!exit )\b[Cc]odes?\b[\s:=\"'`(]{1,4})"
            r"(?!\d{1,5}\b)[A-Z0-9]{6,10}\b"
        ),
        rf"\1{REDACTED}",
    ),
    # "session token 7716259c-37f8", likewise
    (
        re.compile(
            r"(?i)((?:token|secret|passw(?:or)?d|passphrase|api[ _-]?key|ticket|cookie)s?\s+)"
            r"(?=[A-Za-z_.~+/=-]{0,64}\d)[\w.~+/=-]{12,}"
        ),
        rf"\1{REDACTED}",
    ),
)
# Whatever could end a line, move the cursor, hide or reorder text, or not be written at all (lone surrogates).
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_BETWEEN_WORDS = re.compile(r"""[\s"',;&<>]""")


class _Known:
    """The secrets that were registered, in every spelling, as one pattern."""

    def __init__(self) -> None:
        self.secrets: dict[str, tuple[str, ...]] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str) -> None:
        self.secrets.pop(value, None)
        self.secrets[value] = tuple(_spellings(value))
        for oldest in list(self.secrets)[:-MAX_SECRETS]:
            del self.secrets[oldest]
        self._pattern = None

    def redact(self, text: str) -> str:
        if self._pattern is None:
            spellings = sorted({s for known in self.secrets.values() for s in known}, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, spellings)) or r"(?!)", re.IGNORECASE)
        return self._pattern.sub(REDACTED, text)


_known = _Known()  # one, as logging itself is one per process


def register_secret(value: str) -> None:
    """From now on `value` is replaced wherever it occurs, also URL-encoded, quoted, in hex and in base64."""
    if len(value) >= MIN_SECRET:
        _known.add(value)


def clean_text(text: str, limit: int = MAX_TEXT, *, keep_lines: bool = False) -> str:
    """Without secrets and control characters, and no longer than about `limit`. Running it again changes nothing."""
    shown, rest = _cut(text, limit)
    shown = _known.redact(shown)
    decoded = _decoded(shown)
    found = _scrub(decoded)
    shown = found if found != decoded else _scrub(shown)  # what only decoding reveals is shown decoded
    shown = _CONTROL.sub(_escape_all_but_lines if keep_lines else _escape, shown)
    return f"{shown}… ({rest} more characters)" if rest else shown


class Cleaner:
    """Takes the fields of one record apart, within one budget."""

    def __init__(self) -> None:
        self._nodes = MAX_NODES
        self._characters = MAX_TOTAL

    def clean(self, value: object, name: str = "", depth: int = 0) -> Clean:
        self._nodes -= 1
        if self._nodes < 0 or self._characters < 0 or depth > MAX_DEPTH:
            return "[cut]"
        try:
            return self._clean(value, name, depth)
        except Exception:  # a hostile __str__, __iter__ or __len__ must not cost us the record
            return f"[unprintable {clean_text(type(value).__name__, 64)}]"

    def _clean(self, value: object, name: str, depth: int) -> Clean:
        if value is None or isinstance(value, bool):
            return value
        if name and is_secret(name, value):
            return REDACTED
        match value:
            case int() if abs(value) < 2**63:
                return int(value)
            case float() if math.isfinite(value):
                return float(value)
            case str():
                return self._text(str.__str__(value))
            case bytes() | bytearray() | memoryview():
                return self._text(bytes(value[: MAX_TEXT * 5]).decode("utf-8", "backslashreplace"))
            case Mapping():
                return self._mapping(value, depth)
            case list() | tuple() | Set():
                return self._sequence(list(islice(value, MAX_ITEMS)), depth)
            case BaseException():
                return self._text(f"{type(value).__name__}: {value}")
        return self._text(str(value))

    def _text(self, text: str) -> str:
        found = clean_text(text)
        self._characters -= len(found)
        return found

    def _mapping(self, value: Mapping[object, object], depth: int) -> Clean:
        found: dict[str, Clean] = {}
        named = _name_of(value.get("name", value.get("key")))  # {"name": "authorization", "value": …}
        for key, item in islice(value.items(), MAX_ITEMS):
            said = _name_of(key)
            found[clean_text(said, 128)] = self.clean(item, named if said == "value" and named else said, depth + 1)
        return found

    def _sequence(self, items: list[object], depth: int) -> Clean:
        if len(items) == 2 and isinstance(items[0], str | bytes):  # a header as ASGI and http libraries spell it
            first = _name_of(items[0])
            return [self.clean(first, "", depth + 1), self.clean(items[1], first, depth + 1)]
        return [self.clean(item, "", depth + 1) for item in items]


def _name_of(key: object) -> str:
    if isinstance(key, bytes):
        return key.decode("utf-8", "backslashreplace")
    return "" if key is None else str(key)


def _decoded(text: str) -> str:
    """Without percent-encoding, however often a URL was put into a URL."""
    for _ in range(MAX_DEPTH):
        if "%" not in text or (decoded := unquote(text)) == text:
            break
        text = decoded
    return text


def _scrub(text: str) -> str:
    text = _known.redact(text)
    for mark, instead in _MARKS:
        text = mark.sub(instead, text)
    return redact_pairs(text)


def _cut(text: str, limit: int) -> tuple[str, int]:
    """The beginning, and how much was left out. Never ends inside a word or a known secret: half of one is a leak."""
    if len(text) <= limit:
        return text, 0
    kept = text[:limit]
    last = _BETWEEN_WORDS.search(kept[::-1])
    kept = kept[: len(kept) - last.start()] if last else ""
    for spelling in (s for known in _known.secrets.values() for s in known):
        part = next((n for n in range(min(len(spelling), len(kept)), 3, -1) if kept.endswith(spelling[:n])), 0)
        kept = kept[: len(kept) - part]
    return kept, len(text) - len(kept)


def _spellings(value: str) -> list[str]:
    raw = value.encode("utf-8", "surrogatepass")
    found = {value, quote(value, safe="", errors="replace"), quote_plus(value, errors="replace"), raw.hex()}
    found |= {repr(value)[1:-1], json.dumps(value)[1:-1]}
    for shift in range(3):  # base64 of it as part of something longer, such as "user:secret"
        for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
            whole = alphabet(b"\0" * shift + raw).decode().rstrip("=")
            found.add(whole[(0, 2, 3)[shift] : len(whole) - 1])  # the first and last digits depend on the neighbours
    return [spelling for spelling in found if len(spelling) >= MIN_SECRET]


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _escape_all_but_lines(found: re.Match[str]) -> str:
    return found[0] if found[0] == "\n" else _escape(found)
