"""How an upstream stands, in the words that devices are told."""

from __future__ import annotations

from typing import Any

from app.errors import Misconfigured, RelayError
from app.hermes.errors import (
    UpstreamAuthRequired,
    UpstreamDiffers,
    UpstreamInsecure,
    UpstreamKeyShort,
    UpstreamUntrusted,
)

# Waiting does not help: something has to be set.
_WANTS_THE_OWNER = (
    UpstreamAuthRequired, UpstreamDiffers, UpstreamInsecure, UpstreamKeyShort, UpstreamUntrusted, Misconfigured,
)  # fmt: skip


def up(version: str | None) -> dict[str, Any]:
    return {"state": "up"} | ({"version": version} if version else {})


def differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether that is news. The same failure in other words is none."""
    return any(one.get(field) != other.get(field) for field in ("state", "code", "version"))


def fallen(error: RelayError) -> dict[str, Any]:
    """{state: down or auth_required, code, message}; the message says what the owner can do."""
    state = "auth_required" if isinstance(error, _WANTS_THE_OWNER) else "down"
    return {"state": state, "code": error.code, "message": error.message}
