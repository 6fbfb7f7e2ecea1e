"""What a turn shows on its way: thoughts, tools, interim words, waiting, stopping, and how it ends."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.scripted import Json, ScriptedPage, refusal

pytestmark = pytest.mark.browser


def ended(text: str, finish: str = "completed", **fields: object) -> Json:
    return {"turn_id": "t", "session_id": "s", "text": text, "finish": finish} | fields


async def test_thoughts_are_open_while_they_are_thought(paired: ScriptedPage) -> None:
    await paired.open()
    thought = paired.page.locator("details.thought")
    await paired.relay.event("reasoning.delta", delta="The owner ")
    await paired.relay.event("reasoning.delta", delta="wants peace.")
    await expect(thought).to_have_attribute("open", "")
    await expect(thought).to_contain_text("The owner wants peace.")
    await paired.relay.event("assistant.delta", delta="Peace it is.")
    await expect(thought).not_to_have_attribute("open", "")
    await expect(thought.get_by_text("wants peace")).to_be_hidden()
    await paired.relay.event("reasoning.delta", delta="But how?")
    await expect(thought).to_have_count(2)
    await expect(thought.last).to_have_attribute("open", "")
    await thought.first.locator("summary").click()
    await thought.last.locator("summary").click()  # the reader decides
    await paired.relay.event("reasoning.delta", delta=" Slowly.")
    await expect(thought.last).not_to_have_attribute("open", "")
    done = ended("Peace it is.", reasoning="The owner wants peace.But how? Slowly.")
    await paired.relay.say("turn.completed", done, kept=True)
    await expect(paired.button("Stop")).to_be_hidden()
    await expect(thought.first.get_by_text("wants peace")).to_be_visible()
    await expect(thought.last).to_contain_text("But how? Slowly.")


async def test_thoughts_that_only_the_end_tells(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.event("assistant.delta", delta="Four.")
    await paired.relay.say("turn.completed", ended("Four.", reasoning="Two and two."), kept=True)
    thought = paired.page.locator("details.thought")
    await expect(thought).not_to_have_attribute("open", "")
    await thought.locator("summary").press("Enter")
    await expect(thought.get_by_text("Two and two.")).to_be_visible()


async def test_words_and_tools_keep_their_order(paired: ScriptedPage) -> None:
    await paired.open()
    tools = [
        {"tool_id": "t1", "tool_name": "terminal", "state": "completed", "result": "x", "at": 6, "duration_s": 1.5},
        {"tool_id": "t2", "tool_name": "browser", "state": "failed", "error": "no network", "at": 13},
    ]  # fmt: skip
    state = {"text": "First.\n\nThen.\n\nLast", "reasoning": "", "tools": tools, "approvals": [], "started_at": 1}
    await paired.relay.say("turn.snapshot", {"turn_id": "t", "session_id": "s", "n": 9, "state": state})
    await expect(paired.answer).to_contain_text("Last")
    order = await paired.answer.locator("> *").evaluate_all("all => all.map(it => it.className)")
    assert order == ["sr", "prose", "tool", "prose", "tool", "prose streaming", "held"]
    await expect(paired.answer.locator(".prose")).to_have_text(["First.", "Then.", "Last"])
    failed = paired.page.locator("details.tool").last
    await expect(failed).to_have_attribute("data-state", "failed")
    await failed.locator("summary").click()
    await expect(failed).to_contain_text("no network")
    await expect(paired.page.locator("details.tool").first).to_contain_text("1.5 s")


async def test_interim_words_stand_for_themselves(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.event("assistant.commentary", text="I look first.")
    await paired.relay.event("tool.started", tool_id="t1", tool_name="terminal")
    await paired.relay.event("tool.completed", tool_id="t1", tool_name="terminal", result="ok")
    await paired.relay.event("assistant.delta", delta="All is well.")
    await paired.relay.say("turn.completed", ended("All is well."), kept=True)
    await expect(paired.button("Stop")).to_be_hidden()
    order = await paired.answer.locator("> *").evaluate_all("all => all.map(it => it.className)")
    assert order == ["sr", "prose", "tool", "prose"]
    await expect(paired.answer.locator(".prose").first).to_have_text("I look first.")


async def test_a_turn_that_has_not_begun_says_why(paired: ScriptedPage) -> None:
    await paired.open()
    await paired.relay.event("run.waiting", code="upstream_busy", message="Hermes works on other things first.")
    held = paired.page.locator(".held")
    await expect(held).to_have_text("Hermes works on other things first.")
    await paired.relay.event("assistant.delta", delta="Here I am.")
    await expect(held).to_be_hidden()


async def test_a_stop_that_stops(paired: ScriptedPage) -> None:
    paired.relay.answers["chat.stop"] = lambda payload: ("chat.stopped", payload | {"stopped": True})
    await paired.open()
    await paired.relay.event("assistant.delta", delta="One, two")
    await paired.button("Stop").click()
    assert await paired.relay.until("chat.stop") == {"turn_id": "t"}
    await expect(paired.page.get_by_role("button", name="Stopping")).to_be_disabled()
    await expect(paired.page.locator(".held")).to_have_text("Stopping …")
    await paired.relay.say("turn.completed", ended("One, two", "stopped"), kept=True)
    await expect(paired.page.locator(".ending")).to_have_text("Stopped.")


async def test_a_stop_that_does_not(paired: ScriptedPage) -> None:
    no = {"turn_id": "t", "stopped": False, "reason": "this Hermes cannot stop a turn that runs"}
    paired.relay.answers["chat.stop"] = lambda _: ("chat.stopped", no)
    await paired.open()
    await paired.button("Stop").click()
    await expect(paired.page.locator(".toast")).to_contain_text(
        "Not stopped: this Hermes cannot stop a turn that runs."
    )
    await expect(paired.button("Stop")).to_be_enabled()
    paired.relay.answers["chat.stop"] = lambda _: refusal("turn_unknown", "There is no such turn.")
    await paired.button("Stop").click()
    await expect(paired.page.locator(".toast")).to_contain_text("Not stopped: There is no such turn.")


async def test_a_failure_says_what_can_be_done(paired: ScriptedPage) -> None:
    await paired.open()
    error = {
        "code": "upstream_failed",
        "layer": "upstream",
        "message": "Hermes failed: HTTP 500",
        "retryable": True,
    }
    await paired.relay.say("turn.failed", ended("", "failed", error=error), kept=True)
    failure = paired.page.get_by_role("group", name="Failure")
    await expect(failure).to_contain_text("Hermes could not be used")
    await expect(failure).to_contain_text("Hermes failed: HTTP 500")
    await expect(failure).to_contain_text("Hermes' log says more.")
    await expect(failure).to_contain_text("upstream · upstream_failed")


async def test_what_is_wrong_with_hermes_is_said_with_what_to_do(paired: ScriptedPage) -> None:
    key = {
        "state": "auth_required",
        "code": "upstream_key_short",
        "message": "the key is <b>short</b>: set a longer one",
    }
    nobody = {"state": "down", "code": "upstream_unreachable", "message": "it does not answer at http://127.0.0.1:9119"}
    paired.relay.hello["upstream"] = {"api": key, "dashboard": nobody}
    await paired.open(began=False)
    status, banner = paired.page.locator(".status"), paired.page.locator(".banner")
    await expect(status).to_contain_text("Connected, but Hermes lets nobody in")
    await expect(banner).to_have_text("The key is <b>short</b>: set a longer one.")
    await paired.page.get_by_role("button", name="Conversations").click()
    note = paired.page.locator("dialog .foot")
    await note.locator("summary").click()
    await expect(note).to_contain_text("It does not answer at http://127.0.0.1:9119.")
    await paired.page.keyboard.press("Escape")
    up = {"state": "up", "version": "0.19.0"}
    await paired.relay.say("upstream", {"api": up, "dashboard": up}, channel="system")
    await expect(banner).to_have_count(0)
    await expect(status).to_have_text("Connected")
    await expect(note).to_have_count(0)
