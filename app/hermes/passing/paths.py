"""Which paths are Hermes', and which of them may be passed on. Pure; paths are as they came, still quoted."""

from __future__ import annotations

import re
from urllib.parse import unquote

from app.errors import RelayError

_API = rb"(?:v1/|api/sessions(?=/|$)|api/jobs(?=/|$))"
# A profile's own /health goes on too; without a profile it is the relay's.
_PASSED = re.compile(rb"/(?:%b|p/[^/]+/(?:%b|health(?:/detailed)?$))" % (_API, _API))
_CHAT_STREAM = re.compile(r"(?:/p/([^/]+))?/api/sessions/([^/]+)/chat/stream")
_IN_SESSION = re.compile(r"(?:/p/[^/]+)?/api/sessions/([^/]+)(?:/.*)?")
_PRINTABLE = re.compile(rb"[!-~]*")


class PathRefused(RelayError):
    """This path is not passed on to Hermes: write it without dot segments, empty segments and quoted slashes."""

    code = "path_refused"
    http_status = 400


def is_passed(path: bytes) -> bool:
    """Nothing else of Hermes is reached: neither its dashboard nor whatever it may serve besides."""
    return _PASSED.match(path) is not None


def check(path: bytes, query: bytes) -> None:
    """What two readers could understand differently is not passed on. Raises PathRefused."""
    if not _PRINTABLE.fullmatch(path) or not _PRINTABLE.fullmatch(query):
        raise PathRefused()
    steps = path.decode().split("/")[1:]
    if "" in steps[:-1]:
        raise PathRefused()
    for step in steps:
        plain = unquote(step, errors="replace")
        if plain.partition(";")[0] in (".", "..") or not plain.isprintable() or "/" in plain or "\\" in plain:
            raise PathRefused()


def chat_stream(path: bytes) -> tuple[str | None, str] | None:
    """Profile and session of the streamed chat of a session; None for any other path. Of what `check` let pass: a
    quoted letter is that letter to Hermes, and no quoted slash is left.
    """
    match = _CHAT_STREAM.fullmatch(unquote(path.decode()))
    return None if match is None else (match[1], match[2])


def session_of(path: bytes) -> str | None:
    """The session that a path is about; as `chat_stream`."""
    match = _IN_SESSION.fullmatch(unquote(path.decode()))
    return None if match is None else match[1]
