"""The real relay and an agent that thinks and asks, over the dashboard socket, as their owner sees it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from app.demo import texts
from app.demo.stand_in import StandIn
from tests.browser.cable import KEY, Cable
from tests.browser.phone_page import PhonePage, opened, soon
from tests.relay import running, settings_for

pytestmark = pytest.mark.browser


@pytest.fixture
async def asked(browser: Browser, tmp_path: Path, cable: Cable, hermes: StandIn) -> AsyncIterator[PhonePage]:
    """A page of a relay that has the dashboard of its Hermes."""
    settings = settings_for(
        tmp_path,
        HERMES_API_URL=hermes.url,
        HERMES_API_KEY=KEY,
        HERMES_DASHBOARD_URL=hermes.dashboard_url,
        HERMES_DASHBOARD_TOKEN=hermes.dashboard_token,
        PUBLIC_URL=cable.url,
    )
    async with running(settings) as relay:
        cable.plug_into(relay.url)
        async with opened(browser, relay, cable.url) as phone:
            await phone.pair()
            yield phone


async def test_an_approval_is_given_on_the_page(asked: PhonePage) -> None:
    await asked.say("Clean up the old logs")
    card = asked.page.locator(".ask")
    await expect(card).to_contain_text(texts.CLEAN_UP_COMMAND)
    await expect(asked.page.locator("details.thought").first).to_contain_text(texts.CLEAN_UP_THOUGHT)
    await expect(card.locator(".countdown")).to_be_visible()
    await asked.page.reload()
    await asked.connected()
    await expect(card).to_contain_text(texts.CLEAN_UP_COMMAND)
    await card.get_by_role("button", name="Allow once").click()
    await expect(asked.page.locator(".outcome")).to_contain_text("Allowed once · on this device")
    await expect(asked.answers.last).to_contain_text(texts.CLEANED_UP[:30])
    await expect(card).to_have_count(0)
    await expect(asked.page.get_by_role("button", name="Stop")).to_be_hidden()
    order = await asked.answers.last.locator("> *").evaluate_all("all => all.map(it => it.className)")
    assert order == ["sr", "thought", "prose", "tool", "tool outcome", "prose"]
    await (
        asked.page.reload()
    )  # now all of it comes from the agent's history, but what this browser knows of the approval
    await expect(asked.page.locator(".outcome")).to_contain_text("Allowed once · on this device")
    assert await asked.answers.last.locator("> *").evaluate_all("all => all.map(it => it.className)") == order


async def test_another_device_is_first(asked: PhonePage) -> None:
    other = await asked.relay.connect()
    await asked.say("Clean up the old logs")
    request = await other.until("approval.request")
    await expect(asked.page.locator(".ask")).to_be_visible()
    await other.send("chat", "approval.respond", approval_id=request.payload["approval_id"], choice="deny")
    await expect(asked.page.locator(".outcome")).to_contain_text("Denied · on another device")
    await expect(asked.answers.last).to_contain_text(texts.CLEAN_UP_ENDS["deny"][:20])


async def test_a_question_is_answered_on_the_page(asked: PhonePage) -> None:
    await asked.say("Help me choose")
    card = asked.page.locator(".ask")
    await expect(card).to_contain_text(texts.COLOUR)
    await card.get_by_role("button", name="Blue").click()
    await expect(asked.page.locator(".outcome")).to_contain_text("Answered · on this device")
    await expect(asked.answers.last).to_contain_text("Blue")
    await expect(asked.page.get_by_role("button", name="Stop")).to_be_hidden()


async def test_a_turn_is_stopped(asked: PhonePage, hermes: StandIn) -> None:
    hermes.agent.gate.clear()
    await asked.say("WORDS:40 gated")
    await soon(hermes.agent.gated())
    await asked.page.get_by_role("button", name="Stop").click()
    await expect(asked.page.locator(".ending")).to_have_text("Stopped.")


async def test_a_conversation_is_renamed_forked_and_deleted(asked: PhonePage) -> None:
    await asked.say("SAY:hello")
    await expect(asked.answers).to_contain_text("hello")
    heading = asked.page.get_by_role("heading", level=1)
    sheet = asked.page.get_by_role("dialog", name="Conversation", exact=True)
    await heading.get_by_role("button").click()
    await sheet.get_by_role("button", name="Rename").click()
    await sheet.get_by_role("textbox").fill("Greetings")
    await sheet.get_by_role("button", name="Rename").click()
    await expect(heading).to_have_text("Greetings")
    await heading.get_by_role("button").click()
    await sheet.get_by_role("button", name="Fork").click()
    await expect(sheet).to_be_hidden()
    await expect(asked.answers).to_contain_text("hello")
    await heading.get_by_role("button").click()
    await sheet.get_by_role("button", name="Delete").click()
    await sheet.get_by_role("button", name="Delete").click()
    await expect(heading).to_have_text("New conversation")
    await asked.page.get_by_role("button", name="Conversations").click()
    await expect(asked.page.get_by_role("listitem")).to_have_text(re.compile("Greetings"))
