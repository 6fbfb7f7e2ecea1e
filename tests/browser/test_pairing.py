"""From a link or a typed code to a paired device, and back out of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from app.clock import ManualClock
from tests.browser.phone_page import PhonePage, opened
from tests.relay import running, settings_for

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


async def test_a_page_that_is_loaded_again_still_has_its_code_until_it_is_used(phone: PhonePage) -> None:
    page, offer = phone.page, await phone.relay.relay.pairing.mint()
    await page.goto(f"{phone.url}/pair#code={offer.code}&fp=AAAA")
    button = page.get_by_role("button", name="Pair this phone")
    await expect(button).to_be_enabled()
    await page.reload()
    await expect(button).to_be_enabled()
    assert page.url == f"{phone.url}/pair"
    assert await page.evaluate("history.state") == {"code": offer.code, "fingerprint": "AAAA"}
    await button.click()
    await phone.connected()
    assert await page.evaluate("history.state") is None
    await page.reload()
    await phone.connected()


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


async def test_where_the_operator_confirms_the_page_shows_the_digits(browser: Browser, tmp_path: Path) -> None:
    async with (
        running(settings_for(tmp_path, PAIRING_CONFIRM="1")) as relay,
        opened(browser, relay, relay.url) as phone,
    ):
        pairing, page = relay.relay.pairing, phone.page
        await page.goto(f"{phone.url}/pair#code={(await pairing.mint()).code}")
        await page.get_by_role("button", name="Pair this phone").click()
        await expect(page.get_by_role("alert")).to_contain_text("Confirm")
        (waiting,) = await pairing.pending()
        await expect(page.get_by_role("alert")).to_contain_text(str(waiting.confirm))
        await pairing.confirm(str(waiting.confirm), allow=False)
        await expect(page.get_by_role("alert")).to_contain_text("not allowed")
        await page.get_by_label("Pairing code").fill((await pairing.mint()).code)
        await page.get_by_role("button", name="Pair this phone").click()
        await expect(page.get_by_role("alert")).to_contain_text("Confirm")
        (waiting,) = await pairing.pending()
        await pairing.confirm(str(waiting.confirm), allow=True)
        await phone.connected()


async def test_a_page_whose_session_has_ended_begins_again(browser: Browser, tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(settings_for(tmp_path), clock=clock) as relay, opened(browser, relay, relay.url) as phone:
        await phone.pair()
        (before,) = await relay.relay.sessions.list()
        await phone.page.goto("about:blank")
        clock.advance(31 * 86400)
        await phone.page.goto(f"{phone.url}/")
        await phone.connected()
        (after,) = await relay.relay.sessions.list()
        assert (after.session_id, after.term) == (before.session_id, 1)
        await phone.page.goto(f"{phone.url}/")  # with what it was given
        await phone.connected()
        assert (await relay.relay.sessions.list())[0].term == 1


async def test_a_browser_that_cannot_run_the_page_says_so(phone: PhonePage) -> None:
    page = phone.page
    await page.route("**/static/js/main.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
    await page.goto(f"{phone.url}/")
    await expect(page.get_by_text("this browser is too old")).to_be_in_viewport(timeout=20_000)
