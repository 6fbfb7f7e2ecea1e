"""Requests to URLs that come from outside: whoever names one must not make the relay reach into its own network.

The address that is checked is the one that is connected to, so a name that answers differently the second time gains
nothing. Redirects are not followed, no proxy of the environment is used, and an answer is read to a bound only.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import httpcore
import httpx

from app.errors import RelayError

MAX_ANSWER = 64 * 1024  # bytes; who expects more says so
MAX_TRIED = 3  # addresses of one name
TIMEOUT_S = 10.0  # of each step: connect, write, read; the caller bounds the whole

# Everything that is not the public internet (IANA special-purpose registries, multicast, reserved). Our own table:
# what the standard library calls global differs between patch releases of Python.
_SPECIAL = [
    ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # looks public, and is the host of every machine in Azure
        "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",  # Teredo and 6to4 carry any IPv4 address inside
    )
]  # fmt: skip
_GLOBAL_6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")  # how an IPv6-only network reaches IPv4: the address inside decides

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]  # (name, port) → addresses


class AddressRefused(RelayError):
    """That address is not on the public internet, or not https, and the operator has not allowed it."""

    code = "address_refused"
    http_status = 400


class NameUnknown(RelayError):
    """That host name has no address."""

    code = "name_unknown"
    http_status = 502
    retryable = True
    layer = "upstream"


class AnswerTooBig(RelayError):
    """The answer is longer than anybody needs it to be."""

    code = "answer_too_big"
    http_status = 502
    layer = "upstream"


def is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_6:
            return False
    return not any(address in network for network in _SPECIAL if network.version == address.version)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Host names and networks that the operator names. A name goes for whatever it resolves to, and without TLS."""

    names: frozenset[str]
    networks: tuple[Network, ...]

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Allowed:
        names: set[str] = set()
        networks: list[Network] = []
        for entry in entries:
            try:
                networks.append(ip_network(entry, strict=False))
            except ValueError:
                names.add(entry.lower().rstrip("."))
        return cls(frozenset(names), tuple(networks))

    def name(self, host: str) -> bool:
        """Named itself, or a literal address in a network that is."""
        host = host.lower().rstrip(".")
        try:
            return host in self.names or self.address(ip_address(host.strip("[]")))
        except ValueError:
            return False

    def address(self, address: Address) -> bool:
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)


def check_url(url: str, allow: Iterable[str] = ()) -> None:
    """What can be said before anybody connects. Raises AddressRefused."""
    try:
        parsed = httpx.URL(url)
        host, port = parsed.host, parsed.port  # a name in punycode is decoded, if it can be, when it is asked for
    except (httpx.InvalidURL, UnicodeError):
        raise AddressRefused("this is not a URL") from None
    if parsed.userinfo or parsed.fragment or not host or not 1 <= (443 if port is None else port) <= 65535:
        raise AddressRefused("a URL here has a host, a port that exists, and neither a user nor a fragment")
    _check(parsed, Allowed.parse(allow))


def _check(url: httpx.URL, allowed: Allowed) -> None:
    if allowed.name(url.host) and url.scheme in ("http", "https"):
        return
    if url.scheme != "https":
        raise AddressRefused("only https is used, unless the operator names the host")
    try:
        literal = ip_address(url.host)
    except ValueError:
        return  # a name: what it resolves to is checked when it is connected to
    if not is_public(literal):
        raise AddressRefused()


async def resolve(host: str, port: int) -> Sequence[str]:
    """The system's resolver. Raises NameUnknown."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter for what cannot be a host name
        raise NameUnknown(f"{host} has no address") from None
    return [str(entry[4][0]) for entry in found]


def guarded_client(
    allow: Iterable[str] = (), *, max_answer: int = MAX_ANSWER, timeout_s: float = TIMEOUT_S,
    resolver: Resolve = resolve, trust: ssl.SSLContext | None = None,
) -> httpx.AsyncClient:  # fmt: skip
    """A client for URLs from outside; requests raise AddressRefused, NameUnknown, AnswerTooBig besides httpx's errors.

    `allow` are host names, addresses and networks outside the public internet that it may reach all the same.
    """
    if trust is None:
        trust = httpx.create_ssl_context(trust_env=False)
        trust.load_default_certs()  # and what the host trusts besides: a home server may have its own authority
    transport = _Transport(Allowed.parse(allow), max_answer, resolver, trust)
    return httpx.AsyncClient(
        transport=transport, timeout=timeout_s, trust_env=False, follow_redirects=False,
        headers={"user-agent": "talaria", "accept-encoding": "identity"},
    )  # fmt: skip


class _Backend(httpcore.AsyncNetworkBackend):
    """Resolves, checks, and connects to exactly what was checked. TLS still verifies the name."""

    def __init__(self, allowed: Allowed, resolver: Resolve) -> None:
        self._allowed, self._resolve = allowed, resolver
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:  # fmt: skip
        try:
            async with asyncio.timeout(timeout):
                found = [ip_address(text.partition("%")[0]) for text in await self._resolve(host, port)]
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
        usable = [a for a in found if self._allowed.name(host) or self._allowed.address(a) or is_public(a)]
        if not usable:
            raise AddressRefused(detail=f"{host} is {', '.join(map(str, found))}")
        failure: Exception = httpcore.ConnectError()
        tried = usable[:MAX_TRIED]
        for address in tried:
            share = None if timeout is None else timeout / len(tried)
            try:
                return await self._inner.connect_tcp(str(address), port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
                failure = exc
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise AddressRefused("no URL from outside names a socket of this host")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


_ERRORS: tuple[tuple[type[Exception], type[httpx.TransportError]], ...] = (
    (httpcore.ConnectTimeout, httpx.ConnectTimeout), (httpcore.ReadTimeout, httpx.ReadTimeout),
    (httpcore.WriteTimeout, httpx.WriteTimeout), (httpcore.TimeoutException, httpx.PoolTimeout),
    (httpcore.ConnectError, httpx.ConnectError), (httpcore.ReadError, httpx.ReadError),
    (httpcore.NetworkError, httpx.WriteError), (httpcore.ProtocolError, httpx.RemoteProtocolError),
)  # fmt: skip


class _Transport(httpx.AsyncBaseTransport):
    """Over httpcore's own pool, whose network backend is a public argument: httpx has none for it."""

    def __init__(self, allowed: Allowed, max_answer: int, resolver: Resolve, trust: ssl.SSLContext) -> None:
        self._allowed, self._max = allowed, max_answer
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trust, max_connections=32, keepalive_expiry=30.0, network_backend=_Backend(allowed, resolver)
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _check(request.url, self._allowed)
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = httpcore.URL(
            scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port,
            target=request.url.raw_path,
        )  # fmt: skip
        sent = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        with _translated():
            answer = await self._pool.handle_async_request(sent)
        # Undecoded, so that the bound is one; and no cookie of one device's service travels with another's request.
        headers = [(k, v) for k, v in answer.headers if k.lower() not in (b"content-encoding", b"set-cookie")]
        return httpx.Response(answer.status, headers=headers, stream=_Bounded(answer, self._max))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response, limit: int) -> None:
        self._answer, self._limit = answer, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        with _translated():
            async for part in self._answer.aiter_stream():
                read += len(part)
                if read > self._limit:
                    raise AnswerTooBig()
                yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


@contextmanager
def _translated() -> Iterator[None]:
    """httpcore's errors as httpx's; ours pass."""
    try:
        yield
    except tuple(known for known, _ in _ERRORS) as exc:
        raise next(made for known, made in _ERRORS if isinstance(exc, known))(str(exc)) from exc
