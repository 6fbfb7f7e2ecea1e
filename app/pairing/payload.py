"""The QR payload of hermes-relay's clients: where the API and the relay are, signed so that a copy can be told.

No client verifies the signature; it is kept for tools that do. Whole numbers stay whole: one client reads nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from app.errors import Misconfigured
from app.sessions.files import read_or_make

FILE = "qr-secret"
SCHEME = "hermes-relay://pair?payload="
LOOPBACK, ANYWHERE = ("127.0.0.1", "localhost", "::1"), ("0.0.0.0", "::", "")  # noqa: S104
_TAILSCALE = ip_network("100.64.0.0/10")
_LOCAL_NAMES = (".local", ".lan", ".home.arpa", ".internal")


class QrSecret:
    """The key of the signatures: the text of its file."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def load(cls, data_dir: Path) -> Self:
        """Made on first use. Raises Misconfigured for a file that is too short."""
        path = data_dir / FILE
        content = read_or_make(path, lambda: secrets.token_hex(32).encode() + b"\n").strip()
        if len(content) < 32:
            raise Misconfigured(f"{path} holds no secret: delete it to get a new one")
        return cls(content)

    def sign(self, payload: Mapping[str, Any]) -> str:
        text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
        return base64.b64encode(hmac.new(self._key, text.encode("ascii"), hashlib.sha256).digest()).decode()


@dataclass(frozen=True, slots=True)
class Place:
    """Where something answers over HTTP, and over sockets."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of_url(cls, url: str) -> Self:
        """Raises ValueError for what is no origin."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ValueError("it must look like https://name[:port]")
        if parts.path not in ("", "/") or parts.fragment:
            raise ValueError("a path is not supported")
        tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls)

    @property
    def socket_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == (443 if self.tls else 80) else f":{self.port}"
        return f"{'wss' if self.tls else 'ws'}://{host}{port}"

    def as_endpoint(self, priority: int) -> dict[str, Any]:
        """As a candidate; of several the client takes the lowest number that answers."""
        return {
            "role": self._role(), "priority": priority,
            "api": {"host": self.host, "port": self.port, "tls": self.tls},
            "relay": {"url": self.socket_url, "transport_hint": "wss" if self.tls else "ws"},
        }  # fmt: skip

    def _role(self) -> str:
        try:
            ip = ip_address(self.host)
        except ValueError:
            if self.host.endswith(".ts.net"):
                return "tailscale"
            return "lan" if "." not in self.host or self.host.endswith(_LOCAL_NAMES) else "public"
        if ip.version == 4 and ip in _TAILSCALE:
            return "tailscale"
        return "lan" if ip.is_private else "public"


def built(
    secret: QrSecret, *, code: str, key: str, api: Place, relay: Place, terms: Mapping[str, Any],
    endpoints: Sequence[Any], dashboard_url: str | None, fingerprint: str | None = None,
) -> tuple[str, str]:  # fmt: skip
    """(JSON of the payload, link that opens the app with it). `terms`: ttl_seconds, grants, transport_hint as given.

    `fingerprint` is the relay's own, as `fp`: clients that do not know it pass it over.
    """
    payload: dict[str, Any] = {
        "hermes": 3 if endpoints else 2 if terms else 1,
        "host": api.host, "port": api.port, "key": key, "tls": api.tls,
        "relay": {"url": relay.socket_url, "code": code, **terms},
    }  # fmt: skip
    if endpoints:
        payload["endpoints"] = list(endpoints)
    if dashboard_url:
        payload["dashboard_url"] = dashboard_url.rstrip("/")
    if fingerprint:
        payload["fp"] = fingerprint
    payload["sig"] = secret.sign(payload)
    text = json.dumps(payload, separators=(",", ":"))
    return text, SCHEME + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def lan_address() -> str | None:
    """The address that this host has in its network, None without one. Nothing is sent."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address of documentation: only the way there is asked for
        except OSError:
            return None
        found: str = probe.getsockname()[0]
    return None if found in LOOPBACK + ANYWHERE else found
