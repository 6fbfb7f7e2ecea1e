"""The page goes away, or the network does, and nothing is lost or doubled."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from app.demo.stand_in import StandIn
from tests.browser.cable import Cable, behind
from tests.browser.phone_page import PhonePage, opened, soon

pytestmark = pytest.mark.browser


async def test_a_reload_in_mid_turn(phone: PhonePage, hermes: StandIn) -> None:
    await phone.pair()
    hermes.agent.gate.clear()
    await phone.say("tools gated")
    await soon(hermes.agent.gated())
    await expect(phone.answers).to_contain_text("Let")
    await phone.page.reload()
    await phone.connected()
    await expect(phone.bubbles).to_have_text(["tools gated"])
    await expect(phone.answers).to_contain_text("Let")
    hermes.agent.gate.set()
    await expect(phone.answers).to_contain_text("no hands")
    await expect(phone.tools).to_have_count(2)
    await expect(phone.bubbles).to_have_count(1)
    await phone.page.reload()  # now all of it comes from the agent's history
    await expect(phone.answers).to_contain_text("no hands")
    await expect(phone.bubbles).to_have_text(["tools gated"])
    await expect(phone.tools).to_have_count(2)
    assert len(hermes.agent.turns_started) == 1


async def test_the_turn_ends_while_the_page_is_closed(phone: PhonePage, hermes: StandIn) -> None:
    await phone.pair()
    hermes.agent.gate.clear()
    await phone.say("tools gated")
    await soon(hermes.agent.gated())
    await expect(phone.answers).to_contain_text("Let")
    await phone.page.goto("about:blank")
    hermes.agent.gate.set()
    await soon(hermes.agent.ended())
    await phone.page.goto(phone.url)
    await expect(phone.answers).to_contain_text("no hands")
    await expect(phone.bubbles).to_have_text(["tools gated"])
    await expect(phone.answers).to_have_count(1)


async def test_the_socket_is_cut_for_20_seconds(phone: PhonePage, hermes: StandIn, cable: Cable) -> None:
    """20 s for the page, whose clock is wound; its attempts to connect meanwhile are real and are refused."""
    phone.watch.unplugged = True
    await phone.page.clock.install()
    await phone.pair()
    hermes.agent.gate.clear()
    await phone.say("tools gated")
    await soon(hermes.agent.gated())
    await expect(phone.answers).to_contain_text("Let")
    cable.cut()
    for _ in range(20):
        await expect(phone.status).to_contain_text("Reconnecting in")
        await phone.page.clock.run_for(1000)
    assert cable.refused >= 2
    hermes.agent.gate.set()
    await soon(hermes.agent.ended())
    cable.mend()
    while "Reconnecting" in await phone.status.inner_text():
        await phone.page.clock.run_for(1000)
    await phone.connected()
    await expect(phone.answers).to_contain_text("no hands")
    await expect(phone.tools).to_have_count(2)
    await expect(phone.answers).to_have_count(1)
    await expect(phone.bubbles).to_have_text(["tools gated"])
    assert len(hermes.agent.turns_started) == 1


async def test_the_network_is_back_in_mid_turn(phone: PhonePage, hermes: StandIn, cable: Cable) -> None:
    phone.watch.unplugged = True
    await phone.pair()
    hermes.agent.gate.clear()
    await phone.say("WORDS:40 gated")
    await soon(hermes.agent.gated())
    cable.cut()
    await expect(phone.status).to_contain_text("Reconnecting")
    cable.mend()
    await phone.page.evaluate("dispatchEvent(new Event('online'))")
    await phone.connected()
    hermes.agent.gate.set()
    await expect(phone.answers).to_contain_text("w39 w40")
    await expect(phone.answers).to_contain_text("w1 w2 w3")


async def test_what_is_typed_without_a_network_is_sent_once(phone: PhonePage, hermes: StandIn, cable: Cable) -> None:
    phone.watch.unplugged = True
    await phone.pair()
    await phone.say("SAY:hello")
    await expect(phone.answers).to_contain_text("hello")
    cable.cut()
    await expect(phone.status).to_contain_text("Reconnecting")
    await phone.say("SAY:from the tunnel")
    await expect(phone.page.locator(".turn").last).to_contain_text("it will be sent")
    assert len(hermes.agent.turns_started) == 1
    cable.mend()
    await phone.page.reload()  # what was typed outlives the page
    await expect(phone.bubbles).to_have_text(["SAY:hello", "SAY:from the tunnel"])
    await expect(phone.answers.last).to_have_text("Answerfrom the tunnel")
    assert [said for _, said in hermes.agent.turns_started] == ["SAY:hello", "SAY:from the tunnel"]


async def test_a_relay_that_restarts_is_waited_for(
    browser: Browser, hermes: StandIn, cable: Cable, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        async with behind(cable, hermes, tmp_path) as relay:
            phone = await stack.enter_async_context(opened(browser, relay, cable.url))
            phone.watch.unplugged = True
            await phone.pair()
            await phone.say("SAY:before")
            await expect(phone.answers).to_contain_text("before")
        await expect(phone.status).to_contain_text("econnect")
        async with behind(cable, hermes, tmp_path):
            await phone.connected()
            await phone.say("SAY:after")
            await expect(phone.answers).to_have_text(["Answerbefore", "Answerafter"])


async def test_a_second_window_sees_the_turn(phone: PhonePage, hermes: StandIn) -> None:
    await phone.pair()
    await phone.say("SAY:one")
    await expect(phone.answers).to_contain_text("one")
    other = await phone.page.context.new_page()
    await phone.watch.over(other)
    await other.goto(phone.url)
    await expect(other.locator(".answer")).to_contain_text("one")
    hermes.agent.gate.clear()
    await phone.say("gated SAY:two and three")
    await soon(hermes.agent.gated())
    await expect(other.locator(".bubble").last).to_have_text("gated SAY:two and three")
    await expect(other.locator(".answer").last).to_contain_text("two")
    hermes.agent.gate.set()
    await expect(other.locator(".answer").last).to_contain_text("two and three")
    await expect(other.locator(".bubble")).to_have_count(2)
    await phone.connected()


async def test_another_link_takes_over_and_is_taken_over(phone: PhonePage) -> None:
    await phone.pair()
    kept = "name => JSON.parse({local: localStorage, tab: sessionStorage}[name[0]].getItem('talaria.' + name[1]))"
    token = await phone.page.evaluate(kept, ["local", "token"])
    instance = await phone.page.evaluate(kept, ["tab", "instance"])
    other = await phone.relay.connect(session_token=token, instance=instance)
    await expect(phone.status).to_contain_text("Open in another window")
    await phone.page.get_by_role("button", name="Use here").click()
    await phone.connected()
    assert (await other.closed())[0] == 4409
