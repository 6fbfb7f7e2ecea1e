"""Which relay this is, proven to whoever asks."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from app.api import examples
from app.api.deps import OpenRelay
from app.api.edge import allowed_origins, header_values
from app.api.errors import OriginUnknown
from app.api.openapi import answers

router = APIRouter(tags=["identity"])

MAX_CHALLENGE = 88  # characters: 64 bytes as base64, padding and all


@router.get("/identity", responses=answers(examples.IDENTITY))
async def identity(
    request: Request,
    relay: OpenRelay,
    challenge: Annotated[str, Query(max_length=MAX_CHALLENGE, description="16 to 64 random bytes, base64url")],
) -> dict[str, Any]:
    """`signature` is Ed25519 over `talaria-identity-v1`, `origin` and the challenge's bytes, a null byte between them.

    The client compares `origin` with the URL that it dialled, and the fingerprint with the one it was shown. It means
    something over TLS only.
    """
    own = relay.identity
    origin = _origin(header_values(request.scope, b"host")[0], allowed_origins(relay.settings.server))
    return {
        "algorithm": "Ed25519", "origin": origin, "public_key": own.public, "fingerprint": own.fingerprint,
        "signature": own.sign(origin, challenge),
    }  # fmt: skip


def _origin(host: str, configured: frozenset[str]) -> str:
    """The configured origin that has this host. Its scheme is the configured one: what reaches us came through a proxy
    perhaps. Raises OriginUnknown.
    """
    host = host.lower()
    for origin in configured:
        scheme, _, name = origin.partition("://")
        if host in (name, f"{name}:{443 if scheme == 'https' else 80}"):
            return origin
    raise OriginUnknown()
