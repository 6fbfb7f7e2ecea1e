"""Six digits, shown by the phone and to the operator: they say yes to that phone, and not to whoever has the code.

All of it happens in the work that tries the code, so of two who redeem it at once one waits and the other loses, and
the offer with it: two that know the code are one too many.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

import orjson

from app.db import Tx
from app.pairing import store
from app.pairing.errors import ConfirmationPending
from app.sessions.address import Address
from app.wire.payloads import Auth

LASTS_S = 120.0  # as long as a person needs to look at two screens


def claim_of(auth: Auth, code_hash: str, address: Address | None) -> str:
    """What the same client says again, from where it said it: how it is known when it comes back for the answer."""
    said = [code_hash, address.key if address else "", auth.device_id, *about(auth).values()]
    return hashlib.sha256(orjson.dumps(said)).hexdigest()


def about(auth: Auth) -> dict[str, str]:
    """What a device says of itself, for people."""
    said = {
        "name": auth.device_name, "model": auth.device_model, "platform": auth.device_platform,
        "surface": auth.client_surface, "form_factor": auth.device_form_factor,
    }  # fmt: skip
    return {name: value for name, value in said.items() if value}


def ask(tx: Tx, offer: store.Stored, claim: str, claimant: Mapping[str, str], now: float) -> ConfirmationPending:
    """The offer waits for the operator from now on."""
    taken = {other.confirm for other in store.pending(tx, now)}
    confirm = next(digits for digits in iter(_digits, None) if digits not in taken)
    until = now + LASTS_S
    store.claim(tx, offer.offer_id, claim, claimant, confirm, until)
    return ConfirmationPending(offer.offer_id, confirm, until)


def still_asked(offer: store.Stored, now: float) -> ConfirmationPending | None:
    """None: its time is over."""
    until = offer.confirm_until or 0.0
    if not 0 < until - now <= LASTS_S:  # longer than it lasts: the clock was set back
        return None
    return ConfirmationPending(offer.offer_id, offer.confirm or "", until)


def _digits() -> str:
    return f"{secrets.randbelow(1_000_000):06}"
