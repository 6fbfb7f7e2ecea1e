"""Payloads of a phone that can be asked to do things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from app.errors import PayloadInvalid
from app.wire.depth import is_too_deep
from app.wire.payloads import Id, Payload

MAX_STATUS = 64 * 1024  # bytes as JSON; the Android app's has about 1 KiB


class BridgeResponse(Payload):
    """`status` as over HTTP. Whatever else stands there counts as 200: so it does for hermes-relay."""

    request_id: Id
    status: Any = None
    result: Any = None


def encoded_status(payload: Mapping[str, Any]) -> bytes:
    """What a phone says of itself, as JSON. Raises PayloadInvalid."""
    if is_too_deep(payload, MAX_STATUS):
        raise PayloadInvalid("a status may not be nested so deeply")
    encoded = orjson.dumps(payload)
    if len(encoded) > MAX_STATUS:
        raise PayloadInvalid(f"a status has at most {MAX_STATUS} bytes")
    return encoded
