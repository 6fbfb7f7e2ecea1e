"""What hermes-relay's clients scan. `RECORDED` is what its server made."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from app.errors import Misconfigured
from app.pairing.payload import Place, QrSecret, built

RECORDED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"code": "VPWL04"},
        {
            "hermes": 1, "host": "192.0.2.10", "port": 18642, "key": "", "tls": False,
            "relay": {"url": "ws://192.0.2.10:18767", "code": "VPWL04"},
        },
    ),
    (
        {
            "code": "TUG5F5", "key": "KEY",
            "terms": {"ttl_seconds": 604800, "grants": {"terminal": 3600}, "transport_hint": "ws"},
        },
        {
            "hermes": 2, "host": "192.0.2.10", "port": 18642, "key": "KEY", "tls": False,
            "relay": {
                "url": "ws://192.0.2.10:18767", "code": "TUG5F5", "ttl_seconds": 604800, "grants": {"terminal": 3600},
                "transport_hint": "ws",
            },
        },
    ),
    (
        {"code": "DBYVWE", "endpoints": [{"role": "Tailscale", "priority": 1}], "dashboard_url": "http://192.168.1.100:9119/"},
        {
            "hermes": 3, "host": "192.0.2.10", "port": 18642, "key": "", "tls": False,
            "relay": {"url": "ws://192.0.2.10:18767", "code": "DBYVWE"},
            "endpoints": [{"role": "Tailscale", "priority": 1}], "dashboard_url": "http://192.168.1.100:9119",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), RECORDED)
def test_payload_and_link_are_as_recorded(tmp_path: Path, given: dict[str, Any], expected: dict[str, Any]) -> None:
    asked: dict[str, Any] = {
        "key": "",
        "terms": {},
        "endpoints": [],
        "dashboard_url": None,
        "fingerprint": "3f9a",
    } | given
    places: dict[str, Any] = {"api": Place("192.0.2.10", 18642, False), "relay": Place("192.0.2.10", 18767, False)}
    text, url = built(QrSecret.load(tmp_path), **places, **asked)
    payload = json.loads(text)
    sig = payload.pop("sig")
    assert payload.pop("fp") == "3f9a"  # ours
    assert list(payload.items()) == list(expected.items())  # in this order, too
    assert ".0" not in text.replace("192.0.2.10", "")  # a client reads whole numbers only
    scheme, _, encoded = url.partition("=")
    assert scheme == "hermes-relay://pair?payload"
    assert base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode() == text
    secret = (tmp_path / "qr-secret").read_bytes().strip()
    signed = json.dumps(expected | {"fp": "3f9a"}, sort_keys=True, separators=(",", ":")).encode("ascii")
    assert sig == base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def test_the_relays_own_fingerprint_is_signed_too(tmp_path: Path) -> None:
    place, secret = Place("192.0.2.10", 8767, False), QrSecret.load(tmp_path)
    text, _ = built(
        secret, code="VPWL04", key="", api=place, relay=place, terms={}, endpoints=[], dashboard_url=None,
        fingerprint="dm3ZNFmdgCkIa6F8TC7Wqw",
    )  # fmt: skip
    payload = json.loads(text)
    assert payload["fp"] == "dm3ZNFmdgCkIa6F8TC7Wqw"
    assert payload.pop("sig") == secret.sign(payload)


def test_the_signature_covers_every_field_in_any_script(tmp_path: Path) -> None:
    secret = QrSecret.load(tmp_path)
    assert secret.sign({"a": 1, "b": "é"}) == secret.sign({"b": "é", "a": 1})
    assert secret.sign({"a": [1, 2]}) != secret.sign({"a": [2, 1]})
    assert secret.sign({"a": 1}) != secret.sign({"a": 2})


def test_the_secret_is_made_once_and_is_the_owners(tmp_path: Path) -> None:
    first = QrSecret.load(tmp_path).sign({})
    assert QrSecret.load(tmp_path).sign({}) == first
    assert (tmp_path / "qr-secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "qr-secret").write_text("short\n")
    with pytest.raises(Misconfigured, match="qr-secret"):
        QrSecret.load(tmp_path)


@pytest.mark.parametrize(
    ("url", "socket", "role", "port"),
    [
        ("https://home.tailnet.ts.net", "wss://home.tailnet.ts.net", "tailscale", 443),
        ("https://relay.example.net:8443/", "wss://relay.example.net:8443", "public", 8443),
        ("http://192.168.1.5:8767", "ws://192.168.1.5:8767", "lan", 8767),
        ("http://100.101.1.2:8767", "ws://100.101.1.2:8767", "tailscale", 8767),
        ("http://nas:80", "ws://nas", "lan", 80),
        ("http://nas.local", "ws://nas.local", "lan", 80),
        ("http://[fd00::5]:8767", "ws://[fd00::5]:8767", "lan", 8767),
        ("https://203.0.114.5", "wss://203.0.114.5", "public", 443),
    ],
)
def test_a_url_becomes_a_candidate(url: str, socket: str, role: str, port: int) -> None:
    made = Place.of_url(url).as_endpoint(2)
    tls = url.startswith("https")
    assert made["role"] == role
    assert made["priority"] == 2
    assert made["api"] == {"host": Place.of_url(url).host, "port": port, "tls": tls}
    assert made["relay"] == {"url": socket, "transport_hint": "wss" if tls else "ws"}


@pytest.mark.parametrize(
    "url", ["", "home", "ftp://x", "https://", "https://u@x", "https://x/path", "https://x?q=1", "https://x:99999"]
)
def test_what_is_no_origin_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Place.of_url(url)
