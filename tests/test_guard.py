"""What the guard lets through, and that it connects to what it checked."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from app.guard import AddressRefused, Allowed, AnswerTooBig, NameUnknown, check_url, guarded_client, is_public, resolve
from tests.servers import Authority, serving

REFUSED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.9.9.9",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1",
    "2001:0:7f00:1::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:a00:1::1", "2002:808:808::1", "3fff::1",
    "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "5f00::1", "168.63.129.16",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1", "198.17.0.1",
    "198.20.0.1", "223.255.255.254", "2606:4700::1111", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_special_addresses_are_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize(
    "url",
    [
        "http://push.example/x", "ftp://push.example/x", "https://127.0.0.1/x", "https://[::1]/x", "https://[fe80::1]/",
        "https://user:pw@push.example/x", "https:///x", "not a url", "https://push.example/#part", "file:///etc/passwd",
        "https://192.168.1.1:8443/", "http://10.0.0.1/", "https://xn--/x", "https://xn--a/x", "https://push.example:0/x",
        "https://push.example:99999/x", "https://push.example:-1/x",
    ],
)  # fmt: skip
def test_urls_that_nobody_allowed(url: str) -> None:
    with pytest.raises(AddressRefused):
        check_url(url)


def test_what_the_operator_names_is_let_through() -> None:
    for url, entry in [
        ("http://ntfy.lan/x", "ntfy.lan"), ("http://NTFY.lan./x", "ntfy.lan"), ("http://10.1.2.3/x", "10.0.0.0/8"),
        ("https://[fd00::7]/x", "fd00::/8"), ("http://127.0.0.1:99/x", "127.0.0.1"), ("https://push.example/x", ""),
    ]:  # fmt: skip
        check_url(url, [entry] if entry else [])
    with pytest.raises(AddressRefused):
        check_url("http://ntfy.lan.evil.example/x", ["ntfy.lan"])
    assert Allowed.parse(["127.0.0.0/8"]).address(ip_address("::ffff:127.0.0.1"))


class Site:
    """Says what it is told to, and remembers who asked under which name."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.status = 200
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b"here"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.hosts.append(dict(scope["headers"])[b"host"].decode())
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
async def port(site: Site) -> AsyncIterator[int]:
    async with serving(site) as port:
        yield port


async def test_an_address_that_is_not_allowed_is_never_connected_to(site: Site, port: int) -> None:
    async with guarded_client() as client:
        for url in (f"https://127.0.0.1:{port}/", f"https://localhost:{port}/", f"https://0x7f.1:{port}/"):
            with pytest.raises(AddressRefused):
                await client.get(url)
    assert site.hosts == []


async def test_a_name_that_answers_differently_the_second_time_gains_nothing(site: Site, tmp_path: Path) -> None:
    """The checked address is the connected one: a name is resolved once per connection, and by nobody else."""
    authority, answers = Authority(tmp_path), [["127.0.0.1"], ["127.0.0.2"], ["10.0.0.1", "fe80::1"]]

    async def resolver(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async with (
        serving(site, authority, "push.example") as port,
        guarded_client(["127.0.0.1"], resolver=resolver, trust=authority.trust()) as client,
    ):
        assert (await client.get(f"https://push.example:{port}/", headers={"connection": "close"})).text == "here"
        for _ in range(2):
            with pytest.raises(AddressRefused):
                await client.get(f"https://push.example:{port}/")
    assert answers == []
    assert site.hosts == [f"push.example:{port}"]


async def test_of_several_addresses_only_public_ones_are_tried(site: Site, port: int) -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1", "::1", "64:ff9b::7f00:1"]

    async with guarded_client(resolver=resolver) as client:
        with pytest.raises(AddressRefused):
            await client.get(f"https://push.example:{port}/")
    async with guarded_client(["127.0.0.0/8"], resolver=resolver) as client:
        with pytest.raises(AddressRefused, match="https"):
            await client.get(f"http://push.example:{port}/")
    async with guarded_client(["push.example"], resolver=resolver) as client:
        assert (await client.get(f"http://push.example:{port}/")).text == "here"
    assert site.hosts == [f"push.example:{port}"]


async def test_a_redirect_is_an_answer_and_nothing_more(site: Site, port: int) -> None:
    site.status, site.headers = 307, [(b"location", f"http://localhost:{port}/inside".encode())]
    async with guarded_client(["127.0.0.1"]) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).status_code == 307
    assert site.hosts == [f"127.0.0.1:{port}"]


async def test_an_answer_is_read_to_a_bound_and_never_unpacked(site: Site, port: int) -> None:
    async with guarded_client(["127.0.0.1"], max_answer=1000) as client:
        site.body, site.headers = (
            gzip.compress(b"x" * 100_000),
            [(b"content-encoding", b"gzip"), (b"set-cookie", b"a=b")],
        )
        assert (await client.get(f"http://127.0.0.1:{port}/")).content == site.body
        assert not client.cookies
        site.body, site.headers = b"x" * 1001, []
        with pytest.raises(AnswerTooBig):
            await client.get(f"http://127.0.0.1:{port}/")
        site.body = b"still"
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "still"


async def test_tls_is_for_the_name_and_the_connection_for_the_address(site: Site, tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def resolver(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with serving(site, authority, "push.example") as port:
        async with guarded_client(["127.0.0.1"], resolver=resolver, trust=authority.trust()) as client:
            assert (await client.get(f"https://push.example:{port}/")).text == "here"
            with pytest.raises(httpx.ConnectError, match=r"other\.example"):
                await client.get(f"https://other.example:{port}/")
        async with guarded_client(["127.0.0.1"], resolver=resolver) as client:
            with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                await client.get(f"https://push.example:{port}/")
    assert site.hosts == [f"push.example:{port}"]


async def test_a_name_without_an_address_and_a_port_without_a_server() -> None:
    async with guarded_client(["127.0.0.1"]) as client:
        with pytest.raises(NameUnknown):
            await resolve("x" * 64, 443)
        with pytest.raises(httpx.ConnectError):
            await client.get("http://127.0.0.1:1/")
