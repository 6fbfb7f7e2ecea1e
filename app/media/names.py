"""Names of files that come from outside: what is left is one name, and shows what it is."""

from __future__ import annotations

import re

MAX_NAME = 200  # characters: with UTF-8 and a browser's "(1)" it still is a name on every file system

# Controls, and marks that reorder what is read: "exe.gpj" must not look like "jpg.exe". Lone surrogates are none.
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def clean_name(name: str) -> str:
    """The last component, without what cannot be seen. May be empty."""
    last = _UNSHOWN.sub("", re.split(r"[/\\]", name)[-1]).strip()
    if len(last) > MAX_NAME:
        stem, dot, suffix = last.rpartition(".")
        last = stem[: MAX_NAME - len(suffix) - 1] + dot + suffix if stem and len(suffix) <= 16 else last[:MAX_NAME]
    return "" if last in (".", "..") else last
