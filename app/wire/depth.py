"""JSON may be read more deeply nested than it can be written again."""

from __future__ import annotations

from typing import Any

import orjson

_FLAT = 400  # bytes: what is shorter has no room for so many brackets


def is_too_deep(value: Any, length: int) -> bool:
    """Whether no frame could carry this. `length` is how many bytes it was read from."""
    if length <= _FLAT:
        return False
    try:
        orjson.dumps([[[[value]]]])  # a frame puts it a few levels down
    except orjson.JSONEncodeError:
        return True
    return False


def shallow(body: dict[str, Any], length: int) -> dict[str, Any]:
    """Without the values that no frame could carry."""
    if not is_too_deep(body, length):
        return body
    return {name: value for name, value in body.items() if not is_too_deep([value], length)}
