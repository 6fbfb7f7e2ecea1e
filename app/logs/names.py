"""Which names announce a secret. `code` and `key` name both secrets and harmless things, so there the value decides."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

Kind = Literal["secret", "code", "key", ""]

# Anywhere in the name, after case and separators are gone: X-Hermes-Session-Token, refreshToken, HERMES_API_KEY.
_PARTS = re.compile(
    "token|secret|password|passwd|passphrase|passcode|authorization|cookie|credential|private|ticket|"
    "(?:api|session|access|signing|hermes|master|encryption|auth|device)key|pair(?:ing)?code"
)
# Only as a word of their own: "otp" is also in "footprint".
_WORDS = {"otp", "totp", "pwd", "pin", "psk", "jwt", "bearer", "sig", "signature", "seed"}
# Counts of language model tokens, and the public name of a session row.
_HARMLESS = re.compile(
    "(?:max|min|input|output|total|prompt|completion|reasoning|cached?(?:read|write)?|used)?tokens(?:used|total)?"
    "|tokencount|tokenprefix|tokenusage|ticketcount"
)
# What kind of code it is: status_code, close_code, exit_code, error_code.
_HARMLESS_CODES = {"status", "close", "exit", "error", "return", "http", "ws", "reason", "response", "language"}

# An error's code, as app.errors has them, or a number: HTTP status, close code, exit status. A pairing code that
# somebody typed in lower case is 8 long, so a word of 8 is not let through.
_HARMLESS_CODE = re.compile(r"[a-z]+(?:_[a-z]+)+|[a-z]{2,7}|[a-z]{9,40}|-?\d{1,4}")
_KEY_MATERIAL = re.compile(r"(?=.*\d)[\w\-.~+/=]{16,}", re.DOTALL)


def is_secret(name: str, value: object) -> bool:
    """Whether `value` under `name` must not be shown."""
    match kind_of(name):
        case "secret":
            return True
        case "code":
            return _HARMLESS_CODE.fullmatch(str(value)) is None
        case "key":
            return _KEY_MATERIAL.match(str(value)) is not None
    return False


def kind_of(name: str) -> Kind:
    return _kind(name if len(name) <= 256 else name[:128] + name[-128:])


@lru_cache(maxsize=2048)
def _kind(name: str) -> Kind:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    words = [word for word in re.split(r"[^a-z0-9]+", spaced) if word]
    joined = "".join(words)
    if _HARMLESS.fullmatch(joined):
        return ""
    if _PARTS.search(joined) or not _WORDS.isdisjoint(words):
        return "secret"
    if words and words[-1] in ("code", "codes"):
        return "" if len(words) > 1 and words[-2] in _HARMLESS_CODES else "code"
    return "key" if words and words[-1] == "key" else ""
