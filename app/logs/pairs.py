r"""Secrets in running text that stand after their name: `token=…`, `"password": "…"`, `Cookie: …`, `--token …`.

A scanner rather than one substitution, because what counts as the value depends on the name and on how it is quoted,
and because text of a harmless pair (`error: token=…`) must itself be looked at. Linear in the length of the text.
"""

from __future__ import annotations

import re

from app.logs.names import is_secret, kind_of

REDACTED = "[redacted]"

# A name, perhaps quoted (also inside a quoted string: \"), and what leads to its value. `', b'` is how a header looks
# when somebody prints ASGI's list of pairs.
_NAME = re.compile(
    r"""
    (?<![\w.\-])([\w.\-]++)                       # the name; possessive, so that a long run is read once
    (?:
        (?:\\*["'])*+\]?\s{0,8} (?: =>? | :(?!//) ) \s{0,8}
      | (?:\\*["'])++\s{0,8},\s{0,8}(?=b?\\*["'])
      | (?<=\w)>(?=[^\s<=])                       # <password>…
      | (?P<blank>(?<=\w)\s{1,8}(?=[^\s\-]))      # --token …
    )
    """,
    re.VERBOSE,
)
_QUOTED = re.compile(r"""[bBrRuU]{0,2}(\\*)(["'`])""")
_WORD = re.compile(r"""[^\s,;&"'<>)\]}]+""")
_REST_OF_LINE = re.compile(r"""[^\r\n"']+""")
_HEADER = re.compile(r"(?i)authorization|cookie")  # "Basic abc", "a=1; b=2": the whole line
_PHRASE = re.compile(r"(?i)pass(?:word|wd|phrase)|secret")  # may hold blanks
_CLOSING = {"[": "]", "{": "}", "(": ")"}


def redact_pairs(text: str) -> str:
    """`text` with each value that its name gives away replaced. Running it again changes nothing."""
    out: list[str] = []
    done = at = 0
    while (found := _NAME.search(text, at)) is not None:
        name, at = found[1], found.end()
        if found["blank"] and not name.startswith("--"):
            at = found.end(1)
        elif kind_of(name):
            start, end, at = _value(text, at, name, found[0])
            if end > start and is_secret(name, text[start:end]):
                out += [text[done:start], REDACTED]
                done = end
    return "".join([*out, text[done:]])


def _value(text: str, at: int, name: str, lead: str) -> tuple[int, int, int]:
    """Where the value starts and ends, and where to read on."""
    if text.startswith(REDACTED, at):
        return at, at, at + len(REDACTED)
    if (opened := _QUOTED.match(text, at)) is not None:
        return _quoted(text, opened)
    if text[at : at + 1] in _CLOSING:
        end = _bracketed(text, at)
        return at, end, end
    whole_line = _HEADER.search(name) or (_PHRASE.search(name) and ":" in lead)
    found = (_REST_OF_LINE if whole_line else _WORD).match(text, at)
    end = found.end() if found else at
    return at, end, end


def _quoted(text: str, opened: re.Match[str]) -> tuple[int, int, int]:
    """At n backslashes (JSON in JSON) the mark that closes has n of them more than pairs of escaped ones."""
    escapes, mark = len(opened[1]), opened[2]
    for found in re.compile(rf"(\\*){mark}").finditer(text, opened.end()):
        if len(found[1]) % (2 * escapes + 2) == escapes:
            return opened.end(), found.end(1) - escapes, found.end()
    return opened.end(), len(text), len(text)


def _bracketed(text: str, at: int) -> int:
    depth = 0
    for position in range(at, len(text)):
        if text[position] in "[{(":
            depth += 1
        elif text[position] in "]})":
            depth -= 1
            if depth == 0:
                return position + 1
    return len(text)
