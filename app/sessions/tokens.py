"""Session tokens: signed names of a session row. What a token may do, and until when, stands in the row alone.

They carry no `exp` and no `nbf`: home servers' clocks jump, and a reduced session must not live on in its token.
"""

from __future__ import annotations

from typing import NamedTuple

import jwt
from jwt.types import Options

from app.sessions.errors import TokenRejected
from app.sessions.keys import SessionKeys, Signing

TYPE = "talaria-session+jwt"
AUDIENCE = "talaria-session"
ISSUER = "talaria"
ALGORITHM = "EdDSA"
MAX_LENGTH = 4096  # characters; ours have about 330
_OPTIONS: Options = {
    "require": ["iss", "aud", "sub", "sid", "iat"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


class Named(NamedTuple):
    """What a token names. `term`: a session that was renewed after its end has begun another one."""

    session_id: str
    device_id: str
    term: int = 0


def sign(key: Signing, *, session_id: str, device_id: str, now: float, term: int = 0) -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": device_id, "sid": session_id, "iat": int(now)}
    if term:
        claims["term"] = term
    return jwt.encode(claims, key.private, algorithm=ALGORITHM, headers={"kid": key.kid, "typ": TYPE})


def read(keys: SessionKeys, token: str) -> Named:
    """Of a token of ours. Raises TokenRejected."""
    if len(token) > MAX_LENGTH:
        raise TokenRejected(detail="too long")
    try:
        header = jwt.get_unverified_header(token)
        kid = header.get("kid")
        key = keys.public.get(kid) if isinstance(kid, str) else None
        if key is None or header.get("typ") != TYPE:
            raise TokenRejected(detail="unknown key or type")
        # The algorithm is ours, never the header's.
        claims = jwt.decode(token, key, algorithms=[ALGORITHM], audience=AUDIENCE, issuer=ISSUER, options=_OPTIONS)
    except (jwt.PyJWTError, ValueError) as exc:  # ValueError: PyJWT lets some malformed input through to its parsers
        raise TokenRejected(detail=type(exc).__name__) from None
    session_id, device_id, term = claims["sid"], claims["sub"], claims.get("term", 0)
    if not isinstance(session_id, str) or not isinstance(device_id, str) or type(term) is not int:
        raise TokenRejected(detail="claims of the wrong type")
    return Named(session_id, device_id, term)
