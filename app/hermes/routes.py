"""Where Hermes is, and whether a credential may be sent there."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from app.errors import Misconfigured
from app.hermes.errors import UpstreamInsecure
from app.settings import HermesSettings

Name = Literal["local", "remote"]


@dataclass(frozen=True, slots=True)
class Route:
    """One base URL with its credential. `headers` may hold the key: never log a route.

    To people it is its `name`, and its `setting` where there is something to set: hosts are nobody's business.
    """

    base: str = field(repr=False)
    host: str = field(repr=False)
    port: int
    tls: bool
    prefix: str  # path of the base URL, without a slash at its end
    headers: dict[str, str] = field(repr=False, hash=False)
    name: Name = "local"
    setting: str = ""

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def fingerprint(self) -> str:
        """Names the place in a stored lease; of no use to find it."""
        return hashlib.sha256(self.base.encode()).hexdigest()[:16]


def api_routes(settings: HermesSettings) -> tuple[Route, ...]:
    """The local one first; none where the API server is switched off. Raises UpstreamInsecure, Misconfigured."""
    key = _credential(settings.hermes_api_key, "TALARIA_HERMES_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    urls = settings.hermes_api_url, settings.hermes_api_remote_url
    return _routes(settings, "TALARIA_HERMES_API", urls, headers, "the key" if key else "")


def dashboard_routes(settings: HermesSettings) -> tuple[Route, ...]:
    """As `api_routes`, of the dashboard; without headers: what gets one in depends on its mode."""
    token = _credential(settings.hermes_dashboard_token, "TALARIA_HERMES_DASHBOARD_TOKEN")
    password = settings.hermes_dashboard_password and settings.hermes_dashboard_password.get_secret_value()
    sent = "the token" if token else "the password" if password else ""
    urls = settings.hermes_dashboard_url, settings.hermes_dashboard_remote_url
    return _routes(settings, "TALARIA_HERMES_DASHBOARD", urls, {}, sent)


def _credential(value: SecretStr | None, name: str) -> str:
    secret = value.get_secret_value() if value else ""
    if secret and not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise Misconfigured(f"{name} has characters that no HTTP header can carry")
    return secret


def _routes(
    settings: HermesSettings, prefix: str, urls: tuple[str, str], headers: dict[str, str], sent: str
) -> tuple[Route, ...]:
    """`sent` names the credential that will travel there, if one will."""
    local, remote = urls
    found: list[Route] = []
    if local:
        found.append(_route(settings, "local", f"{prefix}_URL", local, headers, sent))
    if remote and remote != local:
        found.append(_route(settings, "remote", f"{prefix}_REMOTE_URL", remote, headers, sent))
    return tuple(found)


def _route(settings: HermesSettings, name: Name, setting: str, url: str, headers: dict[str, str], sent: str) -> Route:
    parts = urlsplit(url)
    host, tls = parts.hostname or "", parts.scheme == "https"
    if sent and not tls and not may_go_plain(host, settings.hermes_allow_plain):
        raise UpstreamInsecure(
            f"{sent} of Hermes is not sent to {setting} without TLS: make it https, or list its host in "
            "TALARIA_HERMES_ALLOW_PLAIN if the way there is private"
        )
    return Route(url, host, parts.port or (443 if tls else 80), tls, parts.path, headers, name, setting)


@cache
def trust() -> ssl.SSLContext:
    """Public authorities, and what this host trusts besides: a home server may have an authority of its own."""
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context


def may_go_plain(host: str, allowed: Collection[str]) -> bool:
    """Whether a credential may be sent to this host over plain HTTP."""
    return is_loopback(host) or host.lower() in {name.lower().strip("[]") for name in allowed}


def is_loopback(host: str) -> bool:
    """Whether the name means this machine, whatever a resolver says."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
