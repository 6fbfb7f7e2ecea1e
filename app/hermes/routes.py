"""Where Hermes is, and whether its key may be sent there."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from app.errors import Misconfigured
from app.hermes.errors import UpstreamInsecure
from app.settings import HermesSettings


@dataclass(frozen=True, slots=True)
class Route:
    """One base URL with its credential. `headers` may hold the key: never log a route."""

    base: str
    host: str
    port: int
    tls: bool
    prefix: str  # path of the base URL, without a slash at its end
    headers: dict[str, str] = field(repr=False)

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def fingerprint(self) -> str:
        """Names the place in a stored lease; of no use to find it."""
        return hashlib.sha256(self.base.encode()).hexdigest()[:16]


def api_route(settings: HermesSettings) -> Route | None:
    """None where the API server is switched off. Raises UpstreamInsecure, Misconfigured."""
    if not settings.hermes_api_url:
        return None
    parts = urlsplit(settings.hermes_api_url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    key = settings.hermes_api_key.get_secret_value() if settings.hermes_api_key else ""
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise Misconfigured("TALARIA_HERMES_API_KEY has characters that no HTTP header can carry")
    if key and not tls and not may_go_plain(host, settings.hermes_allow_plain):
        raise UpstreamInsecure(
            f"the key of Hermes is not sent to {host} without TLS: use https, or list the host in "
            "TALARIA_HERMES_ALLOW_PLAIN if the way there is private"
        )
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return Route(settings.hermes_api_url, host, parts.port or (443 if tls else 80), tls, parts.path, headers)


def may_go_plain(host: str, allowed: Collection[str]) -> bool:
    """Whether a credential may be sent to this host over plain HTTP."""
    return _is_loopback(host) or host.lower() in {name.lower().strip("[]") for name in allowed}


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
