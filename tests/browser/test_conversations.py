"""Conversations are named, forked and deleted, here and elsewhere."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, expect

from tests.browser.scripted import Json, ScriptedPage, refusal, sent_by

pytestmark = pytest.mark.browser


@pytest.fixture
def listed(paired: ScriptedPage) -> ScriptedPage:
    paired.relay.sessions = [{"id": "a", "title": "Apples"}, {"id": "b", "title": "Bananas"}]
    paired.relay.rows["a"] = [{"id": 1, "role": "user", "content": "about apples"}]
    return paired


def drawer(phone: ScriptedPage) -> Locator:
    return phone.page.get_by_role("dialog", name="Conversations")


def sheet(phone: ScriptedPage) -> Locator:
    return phone.page.get_by_role("dialog", name="Conversation", exact=True)


def title(phone: ScriptedPage) -> Locator:
    return phone.page.get_by_role("heading", level=1)


async def menu_of(phone: ScriptedPage, name: str) -> Locator:
    """The open menu of a conversation in the list."""
    if not await drawer(phone).is_visible():
        await phone.page.get_by_role("button", name="Conversations").click()
    row = drawer(phone).get_by_role("listitem").filter(has_text=name)
    await row.get_by_role("button", name="Rename, fork or delete").click()
    return sheet(phone)


async def open_a(phone: ScriptedPage) -> None:
    await phone.open(began=False)
    await phone.page.get_by_role("button", name="Conversations").click()
    await drawer(phone).get_by_role("button", name="Apples").click()
    await expect(phone.page.locator(".bubble")).to_have_text("about apples")


async def test_one_is_renamed(listed: ScriptedPage) -> None:
    listed.relay.answers["chat.sessions.rename"] = lambda payload: (
        "chat.sessions.rename", {"session": {"id": "a", "title": payload["title"]}},
    )  # fmt: skip
    await open_a(listed)
    menu = await menu_of(listed, "Apples")
    await menu.get_by_role("button", name="Rename").click()
    field = menu.get_by_label("Rename the conversation")
    await expect(field).to_have_value("Apples")
    await expect(field).to_be_focused()
    await field.fill("Pears")
    await field.press("Enter")
    await expect(menu).to_be_hidden()
    assert await listed.relay.until("chat.sessions.rename") == {"session_id": "a", "title": "Pears"}
    await expect(drawer(listed).get_by_role("listitem").first).to_contain_text("Pears")
    await expect(title(listed)).to_have_text("Pears")


async def test_one_is_deleted_after_a_confirmation(listed: ScriptedPage) -> None:
    listed.relay.answers["chat.sessions.delete"] = lambda payload: (
        "chat.sessions.delete", payload | {"deleted": True},
    )  # fmt: skip
    await open_a(listed)
    menu = await menu_of(listed, "Apples")
    await menu.get_by_role("button", name="Delete").click()
    await expect(menu).to_contain_text("“Apples” will be gone for good")
    await expect(menu.get_by_role("button", name="Cancel")).to_be_focused()  # not lost with the button that was pressed
    await menu.get_by_role("button", name="Cancel").click()
    assert listed.relay.all("chat.sessions.delete") == []
    menu = await menu_of(listed, "Apples")
    await menu.get_by_role("button", name="Delete").click()
    await menu.get_by_role("button", name="Delete").click()
    await expect(menu).to_be_hidden()
    assert await listed.relay.until("chat.sessions.delete") == {"session_id": "a"}
    await expect(drawer(listed).get_by_role("listitem")).to_have_count(1)
    await expect(title(listed)).to_have_text("New conversation")
    await expect(listed.page.locator(".toast")).to_contain_text("deleted")


async def test_a_refusal_is_shown_where_it_was_asked(listed: ScriptedPage) -> None:
    listed.relay.answers["chat.sessions.delete"] = lambda _: refusal(
        "session_busy", "A turn runs in it: stop it first."
    )
    await listed.open(began=False)
    menu = await menu_of(listed, "Bananas")
    await menu.get_by_role("button", name="Delete").click()
    await menu.get_by_role("button", name="Delete").click()
    await expect(menu.get_by_role("alert")).to_have_text("A turn runs in it: stop it first.")
    await expect(drawer(listed).get_by_role("listitem")).to_have_count(2)


async def test_a_fork_is_opened(listed: ScriptedPage) -> None:
    listed.relay.answers["chat.sessions.fork"] = lambda _: (
        "chat.sessions.fork", {"session": {"id": "c", "title": "Bananas (2)"}},
    )  # fmt: skip
    await listed.open(began=False)
    menu = await menu_of(listed, "Bananas")
    await menu.get_by_role("button", name="Fork").click()
    assert await listed.relay.until("chat.sessions.fork") == {"session_id": "b"}
    await expect(title(listed)).to_have_text("Bananas (2)")
    await expect(drawer(listed)).to_be_hidden()
    await listed.page.get_by_label("Message", exact=True).fill("and now?")
    await listed.button("Send").click()
    assert (await listed.relay.until("chat.send"))["session_id"] == "c"


async def test_what_may_have_happened_is_asked_under_the_same_id(listed: ScriptedPage) -> None:
    listed.watch.unplugged = True
    await listed.open(began=False)
    menu = await menu_of(listed, "Bananas")
    await menu.get_by_role("button", name="Fork").click()
    await listed.relay.until("chat.sessions.fork")
    await listed.relay.hang_up()
    await expect(menu.get_by_role("alert")).to_contain_text("connection to the relay was lost")
    await listed.page.evaluate("dispatchEvent(new Event('online'))")
    await expect(listed.page.locator(".status")).to_contain_text("Connected")
    await menu.get_by_role("button", name="Fork").click()
    await listed.relay.until("chat.sessions.fork", 2)
    first, second = sent_by(listed, "chat.sessions.fork")
    assert first == second


async def test_a_new_one_can_have_a_name_first(listed: ScriptedPage) -> None:
    listed.relay.answers["chat.sessions.create"] = lambda payload: (
        "chat.sessions.create", {"session": {"id": "c", "title": payload["title"]}},
    )  # fmt: skip
    await listed.open(began=False)
    await listed.page.get_by_role("button", name="Name it first").click()
    await sheet(listed).get_by_label("Name of the new conversation").fill("Cherries")
    await sheet(listed).get_by_role("button", name="Begin").click()
    assert await listed.relay.until("chat.sessions.create") == {"title": "Cherries"}
    await expect(title(listed)).to_have_text("Cherries")


async def test_what_happens_elsewhere_is_shown_here(listed: ScriptedPage) -> None:
    await open_a(listed)
    await listed.relay.say("chat.session", {"session_id": "a", "title": "About apples"})
    await expect(title(listed)).to_have_text("About apples")
    await listed.page.get_by_role("button", name="Conversations").click()
    await expect(drawer(listed).get_by_role("listitem")).to_have_count(2)
    await listed.relay.say("chat.session", {"session_id": "a", "title": "All about apples"})
    await listed.relay.say("chat.session", {"session_id": "b", "deleted": True})
    await expect(drawer(listed).get_by_role("listitem")).to_have_count(1)
    await expect(drawer(listed).get_by_role("listitem")).to_contain_text("All about apples")
    await listed.relay.say("chat.session.moved", {"from": "a", "to": "a2"})
    await listed.relay.say("chat.session", {"session_id": "a2", "title": "Only apples"})
    await expect(title(listed)).to_have_text("Only apples")
    await drawer(listed).get_by_role("button", name="Close").click()
    await listed.page.get_by_label("Message", exact=True).fill("more")
    await listed.button("Send").click()
    assert (await listed.relay.until("chat.send"))["session_id"] == "a2"
    await listed.relay.say("chat.session", {"session_id": "a2", "deleted": True})
    await expect(title(listed)).to_have_text("New conversation")


async def test_more_of_a_long_list_stays_and_nothing_is_listed_twice(listed: ScriptedPage) -> None:
    all_ = [{"id": f"s{n}", "title": f"Number {n}"} for n in range(120)]

    def page(payload: Json) -> tuple[str, Json]:
        start, end = payload["offset"], payload["offset"] + payload["limit"]
        return "chat.sessions", payload | {"sessions": all_[start:end], "has_more": end < len(all_)}

    listed.relay.answers["chat.sessions.list"] = page
    await listed.open(began=False)
    await listed.button("Conversations").click()
    rows = drawer(listed).get_by_role("listitem")
    await expect(rows).to_have_count(50)
    all_.insert(0, {"id": "new", "title": "From another device"})
    await drawer(listed).get_by_role("button", name="More").click()
    await expect(rows).to_have_count(99)
    await expect(rows.get_by_text("Number 49", exact=True)).to_have_count(1)
    await listed.relay.say("chat.session", {"session_id": "new", "title": "From another device"})
    await expect(rows.first).to_contain_text("From another device")
    await expect(rows).to_have_count(99)
