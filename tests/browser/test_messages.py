"""Messages in the page: kept before they are confirmed, shown once, and as harmless as answers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, expect

from app.delivery.drafts import Draft
from app.delivery.messages import OPERATOR
from app.demo.stand_in import StandIn
from tests.browser.cable import Cable, behind
from tests.browser.phone_page import PhonePage, opened
from tests.mailboxes import mailbox_row

pytestmark = pytest.mark.browser

STORED = "() => Object.keys(localStorage).filter((name) => name.startsWith('talaria.message.')).length"
DROP_POSITION = """() => localStorage.setItem("talaria.mailbox", JSON.stringify({ epoch: "another", seq: 1 }))"""
# Refuses messages as a full disk does, and nothing else.
NO_ROOM = """
const put = Storage.prototype.setItem;
Storage.prototype.setItem = function (name, value) {
    if (name.startsWith("talaria.message.")) throw new DOMException("full", "QuotaExceededError");
    put.call(this, name, value);
};
"""


async def send(phone: PhonePage, text: str, **fields: Any) -> str:
    sent = await phone.relay.relay.messages.send(Draft(text, **fields), sender=OPERATOR)
    return str(sent["message_id"])


async def show(phone: PhonePage) -> Locator:
    """Open the view; returns its messages."""
    await phone.page.get_by_role("button", name="Conversations").click()
    await phone.page.get_by_role("dialog").get_by_role("button", name="Messages").click()
    await expect(phone.page.get_by_role("heading", name="Messages", level=1)).to_be_visible()
    return shown(phone)


def shown(phone: PhonePage) -> Locator:
    return phone.page.locator("article.message")


async def states(phone: PhonePage, message_id: str) -> list[str]:
    found = await phone.relay.relay.messages.look(message_id)
    return [receipt.state for receipt in found.receipts]


async def confirmed(phone: PhonePage, message_id: str) -> None:
    """Polls the receipt, as a sender does."""
    async with asyncio.timeout(15):
        while True:
            if await states(phone, message_id) == ["acked"]:
                return
            await asyncio.sleep(0.05)


async def all_confirmed(phone: PhonePage) -> None:
    """The mailbox is empty, to its very end."""
    relay = phone.relay.relay
    device = await phone.page.evaluate("() => JSON.parse(localStorage.getItem('talaria.device_id'))")
    async with asyncio.timeout(15):
        while True:
            await relay.messages.waiting(1)
            row = await mailbox_row(relay.db, device)
            if row["acked"] == row["head"]:
                return
            await asyncio.sleep(0.05)


async def test_a_message_to_a_closed_page_is_there_afterwards(phone: PhonePage) -> None:
    await phone.pair()
    await phone.page.goto("about:blank")
    await send(phone, "The **disk** is full", title="Disk")
    second = await send(phone, "And again", source="cron", kind="cron")
    await phone.page.goto(phone.url)
    await expect(phone.page.locator(".notice")).to_contain_text("2 new messages")
    await confirmed(phone, second)
    await phone.page.reload()  # unread, and no longer with the relay
    await phone.connected()
    await expect(phone.page.get_by_role("button", name="Conversations").locator(".count")).to_have_count(1)
    messages = await show(phone)
    await expect(messages).to_have_count(2)
    await expect(messages.first.get_by_role("heading")).to_have_text("Disk")
    await expect(messages.first.locator("strong")).to_have_text("disk")
    await expect(messages.first).to_contain_text("Script")
    await expect(messages.last).to_contain_text("Scheduled")
    await expect(messages.last).to_contain_text("And again")
    await expect(phone.page.locator(".top .count")).to_have_count(0)
    await phone.page.reload()
    await phone.connected()
    await expect(phone.page.locator(".top .count")).to_have_count(0)
    await expect(await show(phone)).to_have_count(2)


async def test_what_the_owner_says_elsewhere_is_no_news(phone: PhonePage) -> None:
    await phone.pair()
    other = await phone.relay.connect()
    await other.until("synced")
    await other.ask("messages", "message.send", text="I am the owner")
    await send(phone, "The disk is full")
    await expect(phone.page.locator(".notice")).to_contain_text("The disk is full")
    await expect(await show(phone)).to_have_count(1)


async def test_a_notice_opens_the_view_and_a_conversation_closes_it(phone: PhonePage) -> None:
    await phone.pair()
    await send(phone, "one\ntwo")
    notice = phone.page.locator("[aria-live=polite] .notice")
    await expect(notice).to_contain_text("New message: one")
    await notice.get_by_role("button", name="Show").click()
    await expect(shown(phone)).to_have_count(1)
    await expect(notice).to_have_count(0)
    await send(phone, "three")
    await expect(shown(phone).last).to_contain_text("three")
    await expect(shown(phone).last).to_be_in_viewport()
    await expect(notice).to_have_count(0)
    await expect(phone.page.locator(".top .count")).to_have_count(0)
    await phone.page.get_by_role("button", name="New conversation").click()
    await expect(shown(phone)).to_have_count(0)
    await phone.say("SAY:hello")
    await expect(phone.answers).to_contain_text("hello")


async def test_nothing_is_doubled_by_a_cut_or_a_reset(phone: PhonePage, cable: Cable) -> None:
    phone.watch.unplugged = True
    await phone.pair()
    await send(phone, "before")
    messages = await show(phone)
    await expect(messages).to_have_count(1)
    cable.cut()  # its acknowledgement may be lost
    await expect(phone.status).to_contain_text("Reconnecting")
    last = await send(phone, "meanwhile")
    cable.mend()
    await phone.page.evaluate("dispatchEvent(new Event('online'))")
    await phone.connected()
    await expect(messages).to_have_count(2)
    await confirmed(phone, last)
    await phone.page.evaluate(DROP_POSITION)  # as after a restored backup: all of it comes again
    await phone.page.reload()
    await phone.connected()
    last = await send(phone, "after")
    await confirmed(phone, last)
    await expect(await show(phone)).to_have_count(3)
    assert await phone.page.evaluate(STORED) == 3


async def test_a_cancelled_message_never_shows_and_later_ones_come(phone: PhonePage) -> None:
    await phone.pair()
    await phone.page.goto("about:blank")
    gone = await send(phone, "forget this")
    assert await phone.relay.relay.messages.cancel(gone)
    last = await send(phone, "but read this")
    await phone.page.goto(phone.url)
    await confirmed(phone, last)
    await phone.page.goto("about:blank")
    gone = await send(phone, "and forget this")  # now the void is the end of the mailbox
    await phone.relay.relay.messages.cancel(gone)
    await phone.page.goto(phone.url)
    await phone.connected()
    messages = await show(phone)
    await expect(messages).to_have_count(1)
    await expect(messages).to_contain_text("but read this")
    await all_confirmed(phone)


async def test_a_long_message_is_fetched_whole(phone: PhonePage) -> None:
    await phone.pair()
    await send(phone, "line of words\n" * 24_000 + "the very end", title="Long")
    messages = await show(phone)
    await expect(messages).to_contain_text("the very end")
    await phone.page.reload()
    await phone.connected()
    messages = await show(phone)
    await expect(messages).to_contain_text("the very end")
    await expect(messages.locator(".message-cut")).to_have_count(0)


async def test_what_a_message_says_cannot_act(phone: PhonePage) -> None:
    """The watch fails the test if anything ran, was blocked, or was fetched from elsewhere."""
    await phone.pair()
    await send(
        phone,
        "<img src=x onerror=alert(1)><script>alert(1)</script>\n\n![pixel](https://tracker.example/p.gif) "
        "[click](javascript:alert(1))\n\n<iframe src='https://elsewhere.example'></iframe> end",
        title="<b onclick=alert(1)>title</b>",
    )
    messages = await show(phone)
    await expect(messages).to_contain_text("end")
    await expect(messages.get_by_role("heading")).to_have_text("<b onclick=alert(1)>title</b>")
    assert await messages.locator("img, script, iframe, b, [style], [onerror], [onclick]").count() == 0
    hrefs = await messages.locator("a").evaluate_all("all => all.map(it => it.getAttribute('href'))")
    assert hrefs == ["https://tracker.example/p.gif"]


async def test_what_cannot_be_stored_is_not_confirmed(
    browser: Browser, hermes: StandIn, cable: Cable, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(behind(cable, hermes, tmp_path))
        phone = await stack.enter_async_context(opened(browser, relay, cable.url))
        await phone.pair()
        tight = await phone.page.context.new_page()
        await phone.page.close()
        await phone.watch.over(tight)
        await tight.add_init_script(NO_ROOM)
        phone.page = tight
        await tight.clock.install()
        await tight.goto(phone.url)
        await phone.connected()
        lost = await send(phone, "no room for this")
        await expect(await show(phone)).to_have_count(1)  # shown, as long as the page is open
        await tight.clock.run_for(1000)  # longer than acknowledgements gather
        await phone.page.get_by_role("button", name="New conversation").click()
        await phone.say("SAY:still talking")  # comes after an acknowledgement, had there been one
        await expect(phone.answers).to_contain_text("still talking")
        assert await states(phone, lost) == ["sent"]
        roomy = await tight.context.new_page()
        await tight.close()
        await phone.watch.over(roomy)
        phone.page = roomy
        await roomy.goto(phone.url)
        await confirmed(phone, lost)
        await expect(await show(phone)).to_have_count(1)


async def test_the_drawer_says_how_push_stands(phone: PhonePage) -> None:
    await phone.pair()
    await phone.page.get_by_role("button", name="Conversations").click()
    await expect(phone.page.get_by_role("dialog")).to_contain_text("Push: not set up")
