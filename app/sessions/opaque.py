"""Opaque tokens: random text that names a row. They are stored as SHA-256: 192 bits need no key and no slow hash."""

from __future__ import annotations

import hashlib
import secrets

# So that a token found somewhere says what it opens, and one that stands in the wrong place is known as no guess.
API = "talaria-api-"
REFRESH = "talaria-refresh-"
TICKET = "talaria-ticket-"


def new(prefix: str) -> str:
    return prefix + secrets.token_urlsafe(24)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
