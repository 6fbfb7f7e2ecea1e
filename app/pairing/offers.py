"""What an offer is, and how a host tool and the operator make one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.sessions import grants as rules

OFFER_S = 600  # a code is typed or scanned within minutes

Ttl = int | Literal["default"] | None


@dataclass(frozen=True, slots=True)
class Terms:
    """What whoever redeems it gets. `grants` None: the defaults, else exactly these. `ttl` None: never ends."""

    name: str | None = None
    grants: rules.Seconds | None = None
    ttl: Ttl = "default"
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What was minted. `grants`: seconds or None for never, all names; `ttl` None: never ends.

    `api_token` opens the Hermes API once the code is redeemed. With `needs_approval` the code opens nothing before.
    """

    offer_id: str
    code: str
    expires_at: float
    ttl: int | None
    grants: rules.Seconds
    name: str | None
    api_token: str | None = None
    needs_approval: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """`approving`: its code opens nothing yet; `confirming`: a device waits, and the operator compares `confirm`."""

    state: Literal["waiting", "approving", "confirming", "redeemed", "expired"]
    expires_at: float
    device_id: str | None = None
    device_name: str | None = None
    confirm: str | None = None
