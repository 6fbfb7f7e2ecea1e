from __future__ import annotations

from ipaddress import ip_network

import pytest

from app.sessions.address import Address, client_address, is_from

PROXY = ip_network("10.0.0.0/24")
FRONT = ip_network("2001:db8:ffff::/48")
NONE: list[tuple[bytes, bytes]] = []


def xff(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", value.encode()) for value in values]


def forwarded(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"forwarded", value.encode()) for value in values]


@pytest.mark.parametrize(
    ("peer", "headers", "expected"),
    [
        # no proxy is trusted: the peer, and local ones may be many
        ("203.0.113.7", NONE, Address("203.0.113.7")),
        ("203.0.113.7", xff("1.1.1.1"), Address("203.0.113.7")),
        ("203.0.113.7", forwarded("for=1.1.1.1"), Address("203.0.113.7")),
        ("127.0.0.1", NONE, Address("127.0.0.1", may_be_many=True)),
        ("127.0.0.1", xff("1.1.1.1"), Address("127.0.0.1", may_be_many=True)),
        ("::1", NONE, Address("::1", may_be_many=True)),
        ("172.17.0.1", NONE, Address("172.17.0.1", may_be_many=True)),
        ("192.168.1.20", NONE, Address("192.168.1.20", may_be_many=True)),
        ("fe80::1%eth0", NONE, Address("fe80::1", may_be_many=True)),
        ("fd12::1", NONE, Address("fd12::1", may_be_many=True)),
        ("::ffff:192.168.1.20", NONE, Address("192.168.1.20", may_be_many=True)),
        ("::ffff:203.0.113.7", NONE, Address("203.0.113.7")),
        ("100.101.102.103", NONE, Address("100.101.102.103")),  # a Tailscale node is one device
        (None, NONE, Address("unix", may_be_many=True)),
        ("", NONE, Address("unix", may_be_many=True)),
    ],
)
def test_without_a_trusted_proxy_it_is_the_peer(
    peer: str | None, headers: list[tuple[bytes, bytes]], expected: Address
) -> None:
    assert client_address(peer, headers, ()) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (xff("203.0.113.7"), Address("203.0.113.7")),
        # what the client wrote itself stands to the left of what the proxy added
        (xff("1.1.1.1, 203.0.113.7"), Address("203.0.113.7")),
        (xff("127.0.0.1, 203.0.113.7"), Address("203.0.113.7")),
        (xff("10.0.0.9, 203.0.113.7"), Address("203.0.113.7")),
        (xff("1.1.1.1", "203.0.113.7"), Address("203.0.113.7")),
        (xff("203.0.113.7, 10.0.0.9"), Address("203.0.113.7")),  # two proxies of ours in a row
        (xff("1.1.1.1, 203.0.113.7, 10.0.0.9, 10.0.0.8"), Address("203.0.113.7")),
        (xff("10.0.0.9, 10.0.0.8"), Address("10.0.0.9")),  # a proxy host's own request
        (xff("192.168.1.20"), Address("192.168.1.20")),  # named by a proxy, so it is one device
        (xff("203.0.113.7:4711"), Address("203.0.113.7")),
        (xff("[2001:db8::7]:4711"), Address("2001:db8::7")),
        (xff("2001:db8::7"), Address("2001:db8::7")),
        (xff("::ffff:203.0.113.7"), Address("203.0.113.7")),
        (forwarded("for=203.0.113.7;proto=https;by=10.0.0.1"), Address("203.0.113.7")),
        (forwarded("for=1.1.1.1, for=203.0.113.7"), Address("203.0.113.7")),
        (forwarded('For="[2001:db8::7]:4711";proto=https'), Address("2001:db8::7")),
        (forwarded("for=1.1.1.1", "proto=https;for=203.0.113.7"), Address("203.0.113.7")),
        # both, and they agree
        (xff("203.0.113.7") + forwarded("for=203.0.113.7"), Address("203.0.113.7")),
        # nobody is believed: the proxy itself, which stands for many
        (NONE, Address("10.0.0.5", may_be_many=True)),
        (xff(""), Address("10.0.0.5", may_be_many=True)),
        (xff("unknown"), Address("10.0.0.5", may_be_many=True)),
        (xff("203.0.113.7, unknown"), Address("10.0.0.5", may_be_many=True)),
        (xff("203.0.113.7, <script>"), Address("10.0.0.5", may_be_many=True)),
        (xff("203.0.113.7,"), Address("10.0.0.5", may_be_many=True)),
        (forwarded("for=_hidden"), Address("10.0.0.5", may_be_many=True)),
        (forwarded("proto=https"), Address("10.0.0.5", may_be_many=True)),
        # the proxy sets one header and lets the client's other one through
        (xff("203.0.113.7") + forwarded("for=1.1.1.1"), Address("10.0.0.5", may_be_many=True)),
        (xff("1.1.1.1") + forwarded("for=203.0.113.7"), Address("10.0.0.5", may_be_many=True)),
    ],
)
def test_through_a_trusted_proxy_it_is_the_right_most_hop_that_is_none(
    headers: list[tuple[bytes, bytes]], expected: Address
) -> None:
    assert client_address("10.0.0.5", headers, (PROXY, FRONT)) == expected


def test_trust_ends_where_the_networks_end() -> None:
    assert client_address("10.0.1.5", xff("203.0.113.7"), (PROXY,)) == Address("10.0.1.5", may_be_many=True)
    assert client_address("2001:db8:ffff::1", xff("203.0.113.7"), (PROXY, FRONT)) == Address("203.0.113.7")
    assert is_from("::ffff:10.0.0.5", (PROXY,))
    assert not is_from(None, (PROXY,))


def test_attempts_of_one_household_count_together() -> None:
    assert Address("2001:db8:1:2:aaaa::1").key == Address("2001:db8:1:2:bbbb::9").key == "2001:db8:1:2::/64"
    assert Address("2001:db8:1:3::1").key != Address("2001:db8:1:2::1").key
    assert Address("203.0.113.7").key == "203.0.113.7"
    assert Address("unix", may_be_many=True).key == "unix"
