"""The page tells the relay that made the code from another before it gives the code away."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from playwright.async_api import Browser, Route, expect

from tests.browser.phone_page import PhonePage, opened
from tests.hermes_client.gates import Gate, tls
from tests.relay import running, settings_for
from tests.servers import Authority

pytestmark = pytest.mark.browser

NO_ED25519 = """
const importKey = crypto.subtle.importKey.bind(crypto.subtle);
crypto.subtle.importKey = (format, key, algorithm, ...rest) =>
  algorithm.name === "Ed25519"
    ? Promise.reject(new DOMException("unknown algorithm", "NotSupportedError"))
    : importKey(format, key, algorithm, ...rest);
"""


@pytest.fixture
async def secure(browser: Browser, tmp_path: Path) -> AsyncIterator[PhonePage]:
    """A relay behind TLS, as phones reach it."""
    async with AsyncExitStack() as stack:
        front = Gate(0, tls(Authority(tmp_path)))
        await front.open()
        stack.push_async_callback(front.shut)
        relay = await stack.enter_async_context(running(settings_for(tmp_path, PUBLIC_URL=front.url)))
        front.target = int(relay.url.rpartition(":")[2])
        yield await stack.enter_async_context(opened(browser, relay, front.url, ignore_https_errors=True))


async def follow(phone: PhonePage, fingerprint: str | None = None) -> None:
    offer = await phone.relay.relay.pairing.mint()
    fingerprint = fingerprint or phone.relay.relay.identity.fingerprint
    await phone.page.goto(f"{phone.url}/pair#code={offer.code}&fp={fingerprint}")
    await phone.page.get_by_role("button", name="Pair this phone").click()


async def refused(phone: PhonePage) -> None:
    await expect(phone.page.get_by_role("alert")).to_contain_text("not the relay that made the code")
    assert await phone.relay.relay.sessions.list() == []


async def test_the_relay_that_made_the_code_is_recognised(secure: PhonePage) -> None:
    async with secure.page.expect_response("**/identity?challenge=*"):
        await follow(secure)
    await secure.connected()
    await expect(secure.page.get_by_text("Paired.")).to_be_visible()
    await expect(secure.page.get_by_text("could not check")).to_have_count(0)


async def test_another_relay_gets_no_code(secure: PhonePage) -> None:
    await follow(secure, "A" * 22)
    await refused(secure)
    await follow(secure)
    await secure.connected()


@pytest.mark.parametrize("forgery", ["signature", "origin", "key", "nothing", "no JSON"])
async def test_a_proof_that_is_none(secure: PhonePage, forgery: str) -> None:
    stranger = Ed25519PrivateKey.generate()

    async def forge(route: Route) -> None:
        answer = await route.fetch()
        said: dict[str, Any] = await answer.json()
        challenge = base64.urlsafe_b64decode(route.request.url.partition("challenge=")[2] + "=")
        text = b"talaria-identity-v1\0" + said["origin"].encode() + b"\0" + challenge
        own = base64.urlsafe_b64encode(stranger.sign(text)).rstrip(b"=").decode()
        public = base64.urlsafe_b64encode(stranger.public_key().public_bytes_raw()).rstrip(b"=").decode()
        said |= {
            "signature": {"signature": own}, "origin": {"origin": "https://other.example"},
            "key": {"public_key": public, "signature": own},
        }.get(forgery, {})  # fmt: skip
        body = {"nothing": "{}", "no JSON": "<html>"}.get(forgery) or json.dumps(said)
        await route.fulfill(status=200, content_type="application/json", body=body)

    await secure.page.route("**/identity?*", forge)
    await follow(secure)
    await refused(secure)


async def test_a_browser_that_cannot_check_says_so_and_goes_on(secure: PhonePage) -> None:
    await secure.page.add_init_script(NO_ED25519)
    await follow(secure)
    await secure.connected()
    await expect(secure.page.get_by_text("could not check that it is the relay")).to_be_visible()


async def test_a_relay_that_is_away_can_be_tried_again(secure: PhonePage) -> None:
    secure.watch.unplugged = True
    await secure.page.route("**/identity?*", lambda route: route.abort())
    await follow(secure)
    await expect(secure.page.get_by_role("alert")).to_contain_text("cannot be reached")
    await secure.page.unroute("**/identity?*")
    await secure.page.get_by_role("button", name="Pair this phone").click()
    await secure.connected()


async def test_without_tls_nothing_is_asked(phone: PhonePage) -> None:
    """It would prove nothing there."""
    asked: list[str] = []
    phone.page.on("request", lambda request: asked.append(request.url))
    await follow(phone, "A" * 22)
    await phone.connected()
    assert not [url for url in asked if "/identity?" in url]
