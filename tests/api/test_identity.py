"""GET /identity: anyone may ask, and is answered for a configured origin only."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.api.conftest import client_of
from tests.relay import RunningRelay, running, settings_for

CHALLENGE = secrets.token_bytes(32)
TEXT = base64.urlsafe_b64encode(CHALLENGE).rstrip(b"=").decode()


def raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def verify(said: dict[str, Any]) -> None:
    key = Ed25519PublicKey.from_public_bytes(raw(said["public_key"]))
    key.verify(raw(said["signature"]), b"talaria-identity-v1\0" + said["origin"].encode() + b"\0" + CHALLENGE)


async def test_on_loopback_the_origin_is_the_one_that_was_dialled(http: httpx.AsyncClient, relay: RunningRelay) -> None:
    answer = await http.get("/identity", params={"challenge": TEXT})
    said = answer.json()
    assert said["origin"] == relay.url
    assert said["fingerprint"] == relay.relay.identity.fingerprint
    assert answer.headers["cache-control"] == "no-store"
    verify(said)
    port = relay.url.rpartition(":")[2]
    named = (await http.get("/identity", params={"challenge": TEXT}, headers={"Host": f"localhost:{port}"})).json()
    assert named["origin"] == f"http://localhost:{port}"
    verify(named)


@pytest.mark.parametrize("host", ["home.ts.net", "HOME.ts.net", "home.ts.net:443"])
async def test_under_a_public_url_it_is_that(tmp_path: Path, host: str) -> None:
    """Whatever the scheme by which a proxy reaches the relay."""
    async with running(settings_for(tmp_path, PUBLIC_URL="https://home.ts.net")) as relay, client_of(relay) as http:
        said = (await http.get("/identity", params={"challenge": TEXT}, headers={"Host": host})).json()
        assert said["origin"] == "https://home.ts.net"
        verify(said)


@pytest.mark.parametrize("host", ["127.0.0.1", "other.lan", "home.ts.net:8443"])
async def test_another_name_is_no_origin(tmp_path: Path, host: str) -> None:
    settings = settings_for(tmp_path, PUBLIC_URL="https://home.ts.net", ALLOWED_HOSTS="other.lan")
    async with running(settings) as relay, client_of(relay) as http:
        answer = await http.get("/identity", params={"challenge": TEXT}, headers={"Host": host})
        assert answer.status_code == 421
        assert answer.headers["x-talaria-error"] == "origin_unknown"
        assert "signature" not in answer.text


@pytest.mark.parametrize("challenge", ["short", "a" * 87 + "a" * 50, None])
async def test_a_challenge_that_is_none(http: httpx.AsyncClient, challenge: str | None) -> None:
    answer = await http.get("/identity", params={} if challenge is None else {"challenge": challenge})
    assert answer.status_code == 400
    assert answer.headers["x-talaria-error"] in ("challenge_invalid", "payload_invalid")


async def test_an_offer_says_what_the_link_holds(operator: httpx.AsyncClient, relay: RunningRelay) -> None:
    offer = (await operator.post("/pairing/mint", json={"for": "web"})).json()
    own = relay.relay.identity.fingerprint
    assert offer["fingerprint"] == own
    assert offer["web_url"].endswith(f"/pair#code={offer['code']}&fp={own}")
