"""A conversation in the page: streaming, tools, failures, waiting turns, earlier conversations."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from app.demo import texts
from app.demo.stand_in import StandIn
from tests.browser.phone_page import PhonePage, soon

pytestmark = pytest.mark.browser


async def test_an_answer_streams_with_its_tools(phone: PhonePage, hermes: StandIn) -> None:
    await phone.pair()
    hermes.agent.gate.clear()
    await phone.say("Show me tools, gated")
    await soon(hermes.agent.gated())
    await expect(phone.answers.last).to_have_text("AnswerLet")  # the first word, and no more, is here already
    hermes.agent.gate.set()
    await expect(phone.answers.last).to_contain_text("a stand-in has no hands")
    await expect(phone.tools).to_have_count(2)
    tool = phone.tools.first
    await expect(tool).to_contain_text("terminal")
    await expect(tool).to_contain_text("uname -n")
    await expect(tool).to_have_attribute("data-state", "completed")
    await expect(tool.locator("pre").first).to_be_hidden()
    await tool.locator("summary").click()
    await expect(tool.locator("pre").first).to_contain_text("command: uname -n")
    await expect(tool.locator("pre").last).to_contain_text("output: stand-in")
    await expect(phone.answers.last.locator("strong").first).to_have_text("ran a command")
    order = await phone.answers.last.locator("> *").evaluate_all("all => all.map(it => it.className)")
    assert order == ["sr", "prose", "tool", "prose", "tool", "prose"]


async def test_markdown_is_drawn(phone: PhonePage) -> None:
    await phone.pair()
    await phone.say("markdown")
    answer = phone.answers.last
    await expect(answer.locator("blockquote")).to_be_visible()
    await expect(answer.locator("h1")).to_have_text("A short tour of Markdown")
    await expect(answer.locator("table tr")).to_have_count(4)
    link = answer.get_by_role("link", name="a link")
    await expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
    await expect(link).to_have_attribute("target", "_blank")
    await expect(answer.locator("pre code")).to_contain_text("def deliver(message: str")


async def test_what_an_agent_repeats_cannot_act(phone: PhonePage) -> None:
    """The watch fails the test if anything ran, was blocked, or was fetched from elsewhere."""
    await phone.pair()
    hostile = (
        r"SAY:<img src=x onerror=alert(1)><script>alert(1)</script><b style='color:red'>bold</b>\n\n"
        r"![pixel](https://tracker.example/p.gif) [click](javascript:alert(1)) [data](data:text/html,hi)\n\n"
        r"<iframe src='https://elsewhere.example'></iframe> <form action=/x><input name=a></form> end"
    )
    await phone.say(hostile)
    answer = phone.answers.last
    await expect(answer).to_contain_text("end")
    await expect(answer).to_contain_text("<script>alert(1)</script>")
    assert await answer.locator("img, script, iframe, form, input, [style], [onerror]").count() == 0
    hrefs = await answer.locator("a").evaluate_all("all => all.map(it => it.getAttribute('href'))")
    assert hrefs == ["https://tracker.example/p.gif"]


async def test_a_failure_names_its_layer_and_can_be_tried_again(phone: PhonePage, hermes: StandIn) -> None:
    await phone.pair()
    await phone.say("fail")
    failure = phone.page.get_by_role("group", name="Failure")
    await expect(failure).to_contain_text(texts.FAILED)
    await expect(failure).to_contain_text("agent · model_failed")
    await failure.get_by_role("button", name="Try again").click()
    await soon(hermes.agent.started(2))
    await expect(phone.bubbles).to_have_count(1)
    await expect(failure).to_contain_text(texts.FAILED)


async def test_a_second_message_waits_its_turn(phone: PhonePage, hermes: StandIn) -> None:
    await phone.pair()
    hermes.agent.gate.clear()
    await phone.say("gated SAY:one two three")
    await phone.say("SAY:four five six")
    await soon(hermes.agent.gated())
    await expect(phone.page.locator(".turn").last).to_contain_text("Waiting: next in line")
    hermes.agent.gate.set()
    await expect(phone.answers.last).to_contain_text("four five six")
    await expect(phone.answers.first).to_contain_text("one two three")
    assert [message for _, message in hermes.agent.turns_started] == ["gated SAY:one two three", "SAY:four five six"]
    assert len({session for session, _ in hermes.agent.turns_started}) == 1


async def test_earlier_conversations_can_be_opened(phone: PhonePage) -> None:
    await phone.pair()
    await phone.say("SAY:the first answer")
    await expect(phone.answers).to_contain_text("the first answer")
    await phone.page.get_by_role("button", name="New conversation").click()
    await expect(phone.answers).to_have_count(0)
    await phone.say("tools")
    await expect(phone.answers).to_contain_text("no hands")
    await phone.page.get_by_role("button", name="Conversations").click()
    listed = phone.page.get_by_role("dialog").get_by_role("listitem")
    await expect(listed).to_have_count(2)
    await listed.filter(has_text="the first answer").get_by_role("button").first.click()
    await expect(phone.page.get_by_role("dialog")).to_be_hidden()
    await expect(phone.answers).to_contain_text("the first answer")
    await expect(phone.bubbles).to_have_text(["SAY:the first answer"])
    await phone.page.get_by_role("button", name="Conversations").click()
    await listed.filter(has_text="tools").get_by_role("button").first.click()
    await expect(phone.tools).to_have_count(2)
    await expect(phone.answers).to_contain_text("no hands")


async def test_a_long_conversation_is_read_in_pages(phone: PhonePage, hermes: StandIn) -> None:
    history = hermes.agent.history
    session = history.create(title="A long one").id
    for n in range(100):
        history.add(session, {"role": "user", "content": f"question {n}"})
        history.add(session, {"role": "assistant", "content": f"answer {n}", "finish_reason": "stop"})
    await phone.pair()
    await phone.page.get_by_role("button", name="Conversations").click()
    await phone.page.get_by_role("dialog").get_by_role("button", name="A long one").click()
    await expect(phone.bubbles.last).to_be_in_viewport()
    await expect(phone.bubbles).to_have_count(30)
    for count in (60, 90, 100):
        top = phone.bubbles.first
        said = await top.inner_text()
        await phone.page.get_by_role("button", name="Earlier messages").click()
        await expect(phone.bubbles).to_have_count(count)
        await expect(phone.bubbles.filter(has_text=said).first).to_be_in_viewport()  # nothing jumped
    await expect(phone.page.get_by_role("button", name="Earlier messages")).to_be_hidden()
    assert await phone.bubbles.all_inner_texts() == [f"question {n}" for n in range(100)]


async def test_the_answer_is_announced_and_the_page_is_labelled(phone: PhonePage) -> None:
    await phone.pair()
    await phone.say(r"SAY:first paragraph\n\nsecond paragraph")
    spoken = phone.page.locator("[aria-live=polite][aria-atomic]")
    await expect(spoken).to_contain_text("second paragraph")
    await expect(phone.page.get_by_role("log", name="Conversation")).to_be_visible()
    unnamed = await phone.page.locator("button, input, textarea").evaluate_all(
        "all => all.filter(it => !(it.innerText.trim() || it.ariaLabel || it.labels?.length)).map(it => it.outerHTML)"
    )
    assert unnamed == []
    small = await phone.page.locator("input, textarea").evaluate_all(
        "all => all.filter(it => parseFloat(getComputedStyle(it).fontSize) < 16).length"
    )
    assert small == 0
