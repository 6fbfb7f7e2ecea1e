"""From a link or a typed code to a paired device, and back out of it."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.phone_page import PhonePage

pytestmark = pytest.mark.browser


async def test_a_link_pairs_and_leaves_no_trace_in_the_address(phone: PhonePage) -> None:
    offer = await phone.relay.relay.pairing.mint()
    page = phone.page
    await page.goto(f"{phone.url}/pair#code={offer.code}")
    await expect(page.get_by_role("heading", name="Pair this phone")).to_be_visible()
    assert page.url == f"{phone.url}/pair"
    await page.get_by_label("Name of this device").fill("Ada's phone")
    await page.get_by_role("button", name="Pair this phone").click()
    await phone.connected()
    assert page.url == f"{phone.url}/"
    assert await page.evaluate("history.length") == 2  # about:blank and the page
    listed = await phone.relay.relay.sessions.list()
    assert [session.device_name for session in listed] == ["Ada's phone"]


async def test_a_paired_page_stays_paired(phone: PhonePage) -> None:
    await phone.pair()
    await phone.page.goto(f"{phone.url}/")
    await phone.connected()
    assert len(await phone.relay.relay.sessions.list()) == 1


async def test_a_typed_code_pairs(phone: PhonePage) -> None:
    offer = await phone.relay.relay.pairing.mint()
    await phone.page.goto(f"{phone.url}/")
    await phone.page.get_by_label("Pairing code").press_sequentially(offer.code.lower())
    await phone.page.get_by_role("button", name="Pair this phone").click()
    await phone.connected()


async def test_a_wrong_code_is_said_and_can_be_corrected(phone: PhonePage) -> None:
    offer = await phone.relay.relay.pairing.mint()
    await phone.page.goto(f"{phone.url}/pair#code=WRONG123")
    await phone.page.get_by_role("button", name="Pair this phone").click()
    await expect(phone.page.get_by_role("alert")).to_contain_text("not valid")
    await phone.page.get_by_label("Pairing code").fill(offer.code)
    await phone.page.get_by_role("button", name="Pair this phone").click()
    await phone.connected()


async def test_a_revoked_device_is_told_to_pair_again(phone: PhonePage) -> None:
    await phone.pair()
    (session,) = await phone.relay.relay.sessions.list()
    await phone.relay.relay.sessions.revoke(session.prefix, actor="operator")
    await expect(phone.page.get_by_role("alert")).to_contain_text("revoked")
    await expect(phone.page.get_by_label("Pairing code")).to_be_visible()
    await phone.page.reload()
    await expect(phone.page.get_by_label("Pairing code")).to_be_visible()
