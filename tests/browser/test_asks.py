"""Approvals and questions in the page: answered once, by whoever is first, and never lost with the page."""

from __future__ import annotations

import re
import time

import pytest
from playwright.async_api import expect

from tests.browser.scripted import DEVICE, ScriptedPage, approval, question, refusal, sent_by

pytestmark = pytest.mark.browser

COMMAND = "rm -rf " + "/srv/data/" + "x" * 300


async def test_an_approval_is_given_once(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.event("tool.started", tool_id="t1", tool_name="terminal", preview="rm")
    await paired.relay.approval("a1", COMMAND, description="Deletes a directory")
    await expect(paired.cards).to_contain_text("Deletes a directory")
    command = paired.cards.locator("pre")
    await expect(command).to_have_text(COMMAND)
    assert await command.evaluate("it => it.scrollWidth <= it.clientWidth")  # however long, it wraps
    await expect(paired.cards.locator(".countdown")).to_have_text(re.compile(r"0:5\d"))
    assert await paired.cards.get_by_role("button").all_inner_texts() == [
        "Deny", "Allow once", "Allow for this conversation", "Always allow",
    ]  # fmt: skip
    await paired.button("Allow once").dblclick()
    assert await paired.relay.until("approval.respond") == {"approval_id": "a1", "choice": "once"}
    for name in ("Deny", "Allow once", "Always allow"):
        await expect(paired.button(name)).to_be_disabled()
    await expect(paired.cards).to_contain_text("Sending your answer")
    await paired.relay.resolved("a1", "allowed", choice="once", by=DEVICE)
    await expect(paired.outcomes).to_contain_text("Allowed once · on this device")
    await expect(paired.cards).to_have_count(0)
    await paired.relay.event("assistant.delta", delta="It is gone.")
    await expect(paired.answer).to_contain_text("It is gone.")
    order = await paired.answer.locator("> *").evaluate_all("all => all.map(it => it.className)")
    assert order[:4] == ["sr", "tool", "tool outcome", "prose streaming"]
    assert len(paired.relay.all("approval.respond")) == 1


async def test_the_answer_of_the_relay_is_enough(paired: ScriptedPage) -> None:
    resolved = {"approval_id": "a1", "turn_id": "t", "outcome": "denied", "choice": "deny", "by": DEVICE}
    paired.relay.answers["approval.respond"] = lambda _: ("approval.resolved", resolved)
    await paired.open()
    await paired.relay.approval("a1", "ls")
    await paired.button("Deny").click()
    await expect(paired.outcomes).to_contain_text("Denied · on this device")
    await paired.relay.resolved("a1", "denied", choice="deny", by=DEVICE)
    await expect(paired.outcomes).to_have_count(1)


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("approval_expired", "Nobody answered in time"),
        ("approval_closed", "Not asked any more"),
        ("approval_unknown", "Not asked any more"),
    ],
)
async def test_what_cannot_be_answered_any_more(paired: ScriptedPage, code: str, shown: str) -> None:
    paired.relay.answers["approval.respond"] = lambda _: refusal(code, "Too late.")
    await paired.open()
    await paired.relay.approval("a1", "ls")
    await paired.button("Allow once").click()
    await expect(paired.outcomes).to_contain_text(shown)
    await paired.relay.resolved("a1", "allowed", choice="session", by="another")  # as every device is told
    await expect(paired.outcomes).to_contain_text("Allowed for this conversation · on another device")


async def test_a_refusal_is_shown_and_it_can_be_answered_again(paired: ScriptedPage) -> None:
    paired.relay.answers["approval.respond"] = lambda _: refusal("upstream_unreachable", "Hermes cannot be reached.")
    await paired.open()
    await paired.relay.approval("a1", "ls")
    await paired.button("Allow once").click()
    await expect(paired.cards.get_by_role("alert")).to_have_text("Hermes cannot be reached.")
    await paired.button("Deny").click()
    assert await paired.relay.until("approval.respond", 2) == {"approval_id": "a1", "choice": "deny"}


async def test_an_answer_that_may_not_have_arrived_keeps_its_id(paired: ScriptedPage) -> None:
    """The relay knows a frame by its id: said again, it counts once."""
    paired.watch.unplugged = True
    await paired.open()
    await paired.relay.approval("a1", "ls")
    await paired.button("Allow once").click()
    await paired.relay.until("approval.respond")
    paired.relay.hello["approvals"] = [approval("a1", "ls")]
    await paired.relay.hang_up()
    await expect(paired.cards.get_by_role("alert")).to_contain_text("may not have arrived")
    await paired.page.evaluate("dispatchEvent(new Event('online'))")
    await expect(paired.page.locator(".status")).to_contain_text("Connected")
    await paired.button("Allow once").click()
    await paired.relay.until("approval.respond", 2)
    first, second = sent_by(paired, "approval.respond")
    assert first == second


async def test_an_answer_that_was_not_sent_is_said_so(paired: ScriptedPage) -> None:
    paired.watch.unplugged = True
    await paired.open()
    await paired.relay.approval("a1", "ls")
    paired.relay.hello["approvals"] = [approval("a1", "ls")]
    await paired.relay.hang_up()
    await expect(paired.page.locator(".status")).to_contain_text("Reconnecting")
    await paired.button("Allow once").click()
    await expect(paired.cards.get_by_role("alert")).to_have_text("There is no connection to the relay.")
    await paired.page.evaluate("dispatchEvent(new Event('online'))")
    await expect(paired.page.locator(".status")).to_contain_text("Connected")
    await expect(paired.cards.get_by_role("alert")).to_have_count(0)
    assert paired.relay.all("approval.respond") == []


async def test_it_stands_behind_the_tool_that_asked_although_that_is_known_late(paired: ScriptedPage) -> None:
    """As after a restart of the relay, for a page that was loaded again."""
    await paired.open()
    await paired.relay.event("tool.started", tool_id="t1", tool_name="terminal")
    await paired.relay.approval("a1", "ls")
    await expect(paired.cards).to_be_visible()
    asked = approval("a1", "ls")
    paired.relay.hello |= {"approvals": [asked], "turns": [{"turn_id": "t", "session_id": "s", "n": 1}]}
    await paired.page.reload()
    await expect(paired.page.locator(".status")).to_contain_text("Connected")
    for text in ("", "I look."):
        state = {"text": text, "reasoning": "", "tools": [], "approvals": [asked], "gap": True}
        await paired.relay.say("turn.snapshot", {"turn_id": "t", "session_id": "s", "n": 1, "state": state})
    payload = {"tool_id": "t1", "tool_name": "terminal"}
    event = {"turn_id": "t", "session_id": "s", "seq": 2, "event": "tool.completed", "payload": payload}
    await paired.relay.say("stream.event", event)
    await expect(paired.answer.locator(".tool")).to_be_visible()
    order = await paired.answer.locator("> *").evaluate_all("all => all.map(it => it.className)")
    assert order[1:4] == ["prose", "tool", "ask"]


async def test_several_are_answered_in_order(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.approval("a1", "first")
    await paired.relay.approval("a2", "second", state="waiting")
    await paired.relay.approval("a3", "third", state="waiting")
    await expect(paired.cards).to_have_count(3)
    await expect(paired.button("Allow once")).to_have_count(1)
    for card in (paired.cards.nth(1), paired.cards.nth(2)):
        await expect(card).to_contain_text("After the one above.")
        await expect(card.get_by_role("button")).to_have_count(0)
    await expect(paired.button("Allow once")).to_be_in_viewport()
    await paired.relay.resolved("a1", "expired")
    await paired.relay.approval("a2", "second")  # the same one, now open
    await expect(paired.cards).to_have_count(2)
    await paired.cards.first.get_by_role("button", name="Deny").click()
    assert (await paired.relay.until("approval.respond"))["approval_id"] == "a2"


async def test_a_reload_shows_what_is_open_and_what_became_of_the_rest(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.approval("a1", "first")
    await paired.relay.approval("a2", "second", state="waiting")
    await paired.relay.approval("a3", "third", state="waiting")
    await expect(paired.cards).to_have_count(3)
    await paired.page.goto("about:blank")
    await paired.relay.resolved("a1", "denied", choice="deny", by="another")  # nobody hears it yet
    asked = approval("a3", "third", state="open")
    paired.relay.hello |= {"approvals": [asked], "turns": [{"turn_id": "t", "session_id": "s", "n": 9}]}
    await paired.page.goto(paired.relay.url)
    await expect(paired.page.locator(".status")).to_contain_text("Connected")
    await paired.relay.say(
        "approval.resolved", {"approval_id": "a1", "turn_id": "t", "outcome": "denied", "by": "another"}
    )
    state = {"text": "x", "reasoning": "", "tools": [], "approvals": [asked], "started_at": time.time()}
    await paired.relay.say("turn.snapshot", {"turn_id": "t", "session_id": "s", "n": 9, "state": state})
    await expect(paired.cards).to_have_count(1)
    await expect(paired.cards.locator("pre")).to_have_text("third")
    await expect(paired.outcomes).to_have_count(2)
    await expect(paired.outcomes.first).to_contain_text("Denied · on another device")
    await expect(paired.outcomes.last).to_contain_text("Not asked any more")


async def test_a_device_that_comes_later_can_answer(paired: ScriptedPage) -> None:
    paired.relay.hello["approvals"] = [approval("a1", "ls", session_id="elsewhere", turn_id="u")]
    paired.relay.sessions = [{"id": "elsewhere", "title": "Nightly backup"}]
    await paired.open(began=False)
    banner = paired.page.locator(".banner")
    await expect(banner).to_contain_text("Nightly backup needs your approval")
    await paired.page.get_by_role("button", name="Conversations").click()
    await expect(paired.page.get_by_role("dialog").get_by_role("listitem")).to_contain_text("asks")
    await paired.page.get_by_role("dialog").get_by_role("button", name="Close").click()
    await banner.get_by_role("button", name="Show").click()
    await expect(banner).to_be_hidden()
    await expect(paired.page.get_by_role("heading", level=1)).to_contain_text("Nightly backup")
    await paired.button("Always allow").click()
    assert await paired.relay.until("approval.respond") == {"approval_id": "a1", "choice": "always"}


async def test_a_question_is_answered_by_a_choice(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.ask("q1", "Which one? " + "x" * 500, choices=["The red one", "The blue one"])
    await expect(paired.cards).to_contain_text("Which one?")
    assert await paired.page.locator(".scroll").evaluate("it => it.scrollWidth <= it.clientWidth")
    await paired.button("The blue one").click()
    assert await paired.relay.until("question.answer") == {"question_id": "q1", "answer": "The blue one"}
    await expect(paired.button("The red one")).to_be_disabled()
    closed = {"question_id": "q1", "turn_id": "t", "outcome": "answered", "answer": "The blue one", "by": DEVICE}
    await paired.relay.say("question.closed", closed, kept=True)
    await expect(paired.outcomes).to_contain_text("Answered · on this device")
    await expect(paired.outcomes).to_contain_text("The blue one")


async def test_a_question_is_answered_in_own_words(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.ask("q1", "What is it called?")
    field = paired.page.get_by_label("Your answer")
    await field.fill("  Talaria ")
    await field.press("Enter")
    assert await paired.relay.until("question.answer") == {"question_id": "q1", "answer": "Talaria"}
    await paired.relay.say("question.closed", {"question_id": "q1", "turn_id": "t", "outcome": "uncertain"}, kept=True)
    await expect(paired.outcomes).to_contain_text("Nobody knows whether the answer arrived")


async def test_the_focus_goes_to_a_card_unless_somebody_types(paired: ScriptedPage) -> None:
    await paired.open()
    box = paired.page.get_by_label("Message", exact=True)
    await box.fill("half a sent")
    await paired.relay.approval("a1", "first")
    await expect(paired.page.locator("[aria-live=assertive]")).to_contain_text("needs your approval: first")
    await expect(box).to_be_focused()
    await paired.page.reload()
    await expect(paired.page.locator(".status")).to_contain_text("Connected")
    await paired.relay.approval("a2", "second")
    await expect(paired.button("Deny")).to_be_focused()  # by a key pressed in error nothing is allowed
    await paired.relay.approval("a3", "third")
    await expect(paired.cards).to_have_count(2)
    await expect(paired.button("Deny").first).to_be_focused()
    await paired.page.keyboard.press("Tab")
    await paired.page.keyboard.press("Enter")
    assert await paired.relay.until("approval.respond") == {"approval_id": "a2", "choice": "once"}
    await paired.relay.resolved("a2", "allowed", choice="once")
    await expect(paired.outcomes.filter(has_text="second").locator("summary")).to_be_focused()


async def test_a_turn_that_ends_asks_nothing_any_more(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.approval("a1", "ls")
    await expect(paired.cards).to_have_count(1)
    done = {"turn_id": "t", "session_id": "s", "text": "", "finish": "stopped"}
    await paired.relay.say("turn.completed", done, kept=True)
    await expect(paired.cards).to_have_count(0)
    await expect(paired.outcomes).to_contain_text("Not asked any more")


async def test_what_was_asked_is_found_in_the_history(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.approval("a1", "ls -la")
    await paired.relay.resolved("a1", "allowed", choice="once", by=DEVICE)
    await paired.relay.say(
        "turn.completed", {"turn_id": "t", "session_id": "s", "text": "Done.", "finish": "completed"}, kept=True
    )
    paired.relay.rows["s"] = [
        {"id": 1, "role": "user", "content": "Tidy up, please"},
        {"id": 2, "role": "assistant", "content": "Done.", "finish_reason": "stop", "reasoning": "I tidy."},
    ]
    await expect(paired.answer).to_contain_text("Done.")
    await paired.page.reload()
    await expect(paired.outcomes).to_contain_text("Allowed once · on this device")
    await expect(paired.page.locator("details.thought")).to_contain_text("I tidy.")
    await expect(paired.page.locator(".turn")).to_have_count(1)


async def test_a_command_hides_nothing(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.approval("a1", "echo \u202eoof\u200b" + " && true" * 100)
    await expect(paired.cards.locator("pre")).to_contain_text("echo U+202EoofU+200B && true")
    await expect(paired.cards).to_contain_text("810 characters: scroll to read all of it.")
    await paired.relay.approval("a1", "echo \u202eoof\u200b", truncated=True)
    await expect(paired.cards).to_contain_text("This is not all of it")


async def test_what_is_asked_is_as_harmless_as_an_answer(paired: ScriptedPage) -> None:
    """The watch fails the test if anything ran, was blocked, or was fetched from elsewhere."""
    hostile = "<img src=x onerror=alert(1)> ![p](https://tracker.example/p.gif) [c](javascript:alert(1))"
    await paired.open()
    await paired.relay.approval("a1", hostile, description=hostile, choices=["once", hostile])
    await paired.relay.say("question.ask", question("q1", hostile, choices=[hostile]), kept=True)
    await expect(paired.cards).to_have_count(2)
    assert await paired.cards.locator("img, script, [onerror]").count() == 0


async def test_the_reader_who_goes_on_to_the_end_stays_there(paired: ScriptedPage) -> None:
    """What is to be answered is kept in sight, and named where it is not; nobody is pulled back to it."""
    await paired.open()
    await paired.relay.event("assistant.delta", delta="\n\n".join(f"line {n}" for n in range(40)))
    await paired.relay.approval("a1", "first")
    for n in range(2, 9):
        await paired.relay.approval(f"a{n}", "another", state="waiting", description="why " * 40)
    await expect(paired.cards).to_have_count(8)
    await expect(paired.button("Allow once")).to_be_in_viewport()
    box = paired.page.locator(".scroll")
    await box.evaluate("it => { it.scrollTop = it.scrollHeight }")
    asks = paired.page.get_by_role("button", name="The agent asks")
    await expect(asks).to_be_visible()
    await paired.relay.approval("a9", "the last", state="waiting")
    await expect(paired.cards.last).to_be_in_viewport()
    await asks.click()
    await expect(paired.button("Allow once")).to_be_in_viewport()
    await expect(asks).to_be_hidden()
    await box.evaluate("it => { it.scrollTop = 0 }")
    await expect(asks).to_be_visible()


async def test_what_a_tool_asks_outside_every_conversation_can_be_answered_anywhere(paired: ScriptedPage) -> None:
    paired.relay.answers["approval.respond"] = lambda _: (
        "approval.resolved",
        {"approval_id": "a1", "turn_id": None, "outcome": "allowed", "choice": "once", "by": DEVICE},
    )
    await paired.open()
    await paired.relay.approval("a1", "send_sms +49 30 1234", turn_id=None, session_id=None, choices=["once", "deny"])
    card = paired.page.locator(".asked-outside .ask")
    await expect(card).to_contain_text("send_sms +49 30 1234")
    await expect(paired.page.get_by_text("Another conversation")).to_have_count(0)
    await paired.button("Allow once").click()
    assert await paired.relay.until("approval.respond") == {"approval_id": "a1", "choice": "once"}
    await expect(card).to_have_count(0)
