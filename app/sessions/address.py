"""Who is calling, as far as the network can say. It limits guessing and grants nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network

# Spelled out: `is_private` also holds for ranges that are merely reserved.
_LOCAL = [
    ip_network(text)
    for text in (
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
        "::1/128", "fc00::/7", "fe80::/10",
    )
]  # fmt: skip
_FOR = re.compile(r'(?:^|[;,\s])for\s*=\s*("[^"]*"|[^;,\s]*)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """`may_be_many`: a proxy that tells us nothing, or a bridge, may stand before many devices."""

    host: str
    may_be_many: bool = False

    @property
    def key(self) -> str:
        """What attempts are counted by. One household has a whole IPv6 /64."""
        ip = _parse(self.host)
        return str(ip_network((ip, 64), strict=False)) if isinstance(ip, IPv6Address) else str(ip or self.host)


def client_address(
    peer: str | None, headers: Iterable[tuple[bytes, bytes]], trusted_proxies: Sequence[Network]
) -> Address:
    """The peer, or, if that is a trusted proxy, the right-most hop that is none. `headers`: ASGI, lower case names."""
    ip = _parse(peer or "")
    if ip is None:
        return Address(peer or "unix", may_be_many=True)
    if not _is_in(ip, trusted_proxies):
        return Address(str(ip), may_be_many=_is_in(ip, _LOCAL))
    clients = {client for chain in _chains(headers) if chain for client in [_client(chain, trusted_proxies)]}
    # A proxy sets one of the two headers and may let the other through as the caller wrote it. So where they differ,
    # and where a hop is no address, nobody is believed.
    if len(clients) == 1 and (client := clients.pop()) is not None:
        return Address(str(client))
    return Address(str(ip), may_be_many=True)


def is_from(peer: str | None, networks: Sequence[Network]) -> bool:
    if not networks:
        return False
    ip = _parse(peer or "")
    return ip is not None and _is_in(ip, networks)


def _chains(headers: Iterable[tuple[bytes, bytes]]) -> tuple[list[str], list[str]]:
    """The hops that X-Forwarded-For and Forwarded name, nearest last."""
    plain: list[str] = []
    standard: list[str] = []
    for name, value in headers:
        if name == b"x-forwarded-for":
            plain += [hop.strip() for hop in value.decode("latin-1").split(",")]
        elif name == b"forwarded":
            standard += [hop.strip('"') for hop in _FOR.findall(value.decode("latin-1"))] or [""]
    return plain, standard


def _client(chain: list[str], trusted: Sequence[Network]) -> IPv4Address | IPv6Address | None:
    ip: IPv4Address | IPv6Address | None = None
    for hop in reversed(chain):
        ip = _parse(hop)
        if ip is None or not _is_in(ip, trusted):
            return ip
    return ip  # every hop is a proxy of ours: the request began at the farthest


@lru_cache(1024)
def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Also `1.2.3.4:56`, `[::1]:56`, and IPv4 written as IPv6."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        ip = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return ip.ipv4_mapped or ip if isinstance(ip, IPv6Address) else ip


def _is_in(ip: IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    return any(ip in network for network in networks)
